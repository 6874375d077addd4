/* run, bench: a text compiled on the spot, or a compiled file, through the same program that every
 * compiled file carries. */
#include "driver/work.h"
#include "runtime/program.h"
#include <string.h>

/* The options of this command line that the program takes too, in its spelling. */
static const OptionId passed_on[] = {OPTION_INPUT,   OPTION_OUTPUT, OPTION_LABELS,
                                     OPTION_DEVICE,  OPTION_BUCKET, OPTION_TRACE,
                                     OPTION_THREADS, OPTION_NAN,    OPTION_DIAGNOSTICS};

static int run_program(Work *w, const char *path, bool bench)
{
    ARRAY(char *) argv = {0};
    const char *name = command_info[w->cli->command].name;
    ARRAY_PUSH(w->arena, &argv, arena_printf(w->arena, "sinter %s", name));
    if (bench)
        ARRAY_PUSH(w->arena, &argv, arena_strdup(w->arena, "--bench"));
    for (size_t i = 0; i < COUNT_OF(passed_on); i++)
        for (int k = 0; k < w->cli->value[passed_on[i]].num; k++) {
            ARRAY_PUSH(w->arena, &argv,
                       arena_printf(w->arena, "--%s", option_info[passed_on[i]].name));
            ARRAY_PUSH(w->arena, &argv,
                       arena_strdup(w->arena, w->cli->value[passed_on[i]].elem[k]));
        }
    int argc = argv.num;
    ARRAY_PUSH(w->arena, &argv, NULL);
    return program_main(path, argc, argv.elem);
}

static int compile_and_run(Cli *cli, bool bench)
{
    Work w;
    int exit_code = EXIT_OK;
    if (!work_init(&w, cli))
        return EXIT_INPUT;
    const char *program = work_program(&w, cli->operand.elem[0]);
    if (program && !w.diag.num_errors)
        exit_code = run_program(&w, program, bench);
    return work_end(&w, exit_code);
}

int cmd_run(Cli *cli)
{
    return compile_and_run(cli, false);
}

int cmd_bench(Cli *cli)
{
    return compile_and_run(cli, true);
}
