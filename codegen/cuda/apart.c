/* codegen/cuda/apart: dynamic quantisations out of the epilogue of a product, for groups of columns
 * that no tile of it holds. The product stores plain values, a row kernel each quantises them. */
#include "codegen/cuda/target.h"

#include <string.h>

static bool is_dynamic(const PlanTensor *tensors, const PlanLaunch *l, const TileStep *s)
{
    return s->op == TILE_QUANTIZE && !tensors[l->operand[s->tensor].tensor].is_static;
}

/* Stores where the program quantised, and adds no codes up. */
static PlanProgram plain_program(Arena *arena, const PlanTensor *tensors, const PlanLaunch *l,
                                 const PlanProgram *program)
{
    bool moved[PLAN_MAX_OPERANDS] = {false};
    TileStep *step = ARENA_NEW_ARRAY(arena, TileStep, (size_t)program->num_steps);
    int num = 0;
    for (int i = 0; i < program->num_steps; i++) {
        TileStep s = program->step[i];
        if (is_dynamic(tensors, l, &s)) {
            moved[s.tensor] = true;
            s.op = TILE_STORE;
        }
        if (s.op != TILE_CODE_SUM || !moved[s.tensor2])
            step[num++] = s;
    }
    return (PlanProgram){step, num};
}

PlanLaunch cuda_row_launch(const PlanLaunch *like, const char *words, int num, PlanOperand *operand,
                           PlanProgram program)
{
    return (PlanLaunch){.family = LAUNCH_TILE,
                        .layer = like->layer,
                        .place = like->place,
                        .absorbed = words,
                        .num_operands = num,
                        .operand = operand,
                        .a = -1,
                        .w = -1,
                        .src = -1,
                        .dst = -1,
                        .program = program};
}

/* Quantises the tensor `plain` as step `at` would have, with the sums of its codes. */
static PlanLaunch quantise_launch(Arena *arena, const PlanLaunch *l, const PlanProgram *program,
                                  int at, int plain)
{
    const TileStep *s = &program->step[at];
    int sums = 0, num = 0, operands = 2;
    for (int i = at + 1; i < program->num_steps; i++)
        sums += program->step[i].op == TILE_CODE_SUM && program->step[i].tensor2 == s->tensor;
    TileStep *step = ARENA_NEW_ARRAY(arena, TileStep, (size_t)sums + 2);
    PlanOperand *operand = ARENA_NEW_ARRAY(arena, PlanOperand, (size_t)sums + 2);
    operand[0] = operand[1] = l->operand[s->tensor];
    operand[0].tensor = plain;
    step[num++] = (TileStep){.op = TILE_LOAD, .tensor = 0};
    step[num] = *s;
    step[num].src[0] = 0;
    step[num++].tensor = 1;
    for (int i = at + 1; i < program->num_steps; i++) {
        if (program->step[i].op != TILE_CODE_SUM || program->step[i].tensor2 != s->tensor)
            continue;
        operand[operands] = l->operand[program->step[i].tensor];
        step[num] = program->step[i];
        step[num].tensor2 = 1;
        step[num++].tensor = (uint16_t)operands++;
    }
    PlanLaunch ret = cuda_row_launch(l, "quantize", operands, operand, (PlanProgram){step, num});
    ret.whole_rows = true;
    return ret;
}

int cuda_apart(Arena *arena, const PlanTensor *tensors, int first, PlanLaunch *l,
               CudaApart ret[CUDA_APART_MOST])
{
    const PlanLaunch before = *l;
    PlanSegment *segment = ARENA_NEW_ARRAY(arena, PlanSegment, (size_t)l->num_segments);
    PlanOperand *operand = ARENA_NEW_ARRAY(arena, PlanOperand, (size_t)l->num_operands);
    memcpy(operand, l->operand, (size_t)l->num_operands * sizeof *operand);
    int num = 0;
    for (int i = 0; i < l->num_segments; i++) {
        const PlanProgram *program = &before.segment[i].epilogue;
        segment[i] = before.segment[i];
        segment[i].epilogue = plain_program(arena, tensors, &before, program);
        for (int at = 0; at < program->num_steps && num < CUDA_APART_MOST; at++) {
            const TileStep *s = &program->step[at];
            if (!is_dynamic(tensors, &before, s))
                continue;
            ret[num].like = before.operand[s->tensor].tensor;
            ret[num].launch = quantise_launch(arena, &before, program, at, first + num);
            operand[s->tensor].tensor = first + num;
            num++;
        }
    }
    l->segment = segment;
    l->operand = operand;
    return num;
}
