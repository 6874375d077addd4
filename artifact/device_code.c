/* Kernels of a plan for devices, as bytes: counts, entry names, the table of launches, then the
 * images. Little-endian. */
#include "artifact/artifact.h"

#include <stdlib.h>
#include <string.h>

#define CODE_MAGIC  0x45444353u /* "SCDE" */
#define MAX_KERNELS 4096
#define MAX_IMAGES  65536
#define MAX_NAME    64

typedef struct Reader {
    const uint8_t *pos, *end;
    bool failed;
} Reader;

static void put_u64(Bytes *b, uint64_t v, int size)
{
    uint8_t le[8];
    for (int i = 0; i < size; i++)
        le[i] = (uint8_t)(v >> (8 * i));
    bytes_put(b, le, (size_t)size);
}

int plan_launch_parameters(const PlanLaunch *l)
{
    return l->family == LAUNCH_MOVE || l->family == LAUNCH_DECODE
               ? 2
               : l->num_operands + 2 * (l->family == LAUNCH_GEMM) + l->grouped;
}

static bool dim_varies(PlanDim d)
{
    return d.mul != 0 && (d.sym[0] >= 0 || d.sym[1] >= 0);
}

/* Columns of the tensor, or of one that it is a view of. */
static bool columns_vary(const Plan *plan, int tensor)
{
    const PlanTensor *t = &plan->tensor[tensor];
    if (t->rank > 0 && dim_varies(t->dim[t->rank - 1]))
        return true;
    return t->storage == STORAGE_VIEW && columns_vary(plan, t->index);
}

static bool move_varies(const PlanLaunch *l)
{
    bool varies = dim_varies(l->move_src_offset) || dim_varies(l->move_dst_offset);
    for (int i = 0; i < l->move_rank; i++)
        varies = varies || (i > 0 && dim_varies(l->move_dim[i])) ||
                 dim_varies(l->move_src_stride[i]) || dim_varies(l->move_dst_stride[i]);
    return varies;
}

bool plan_launch_varies(const Plan *plan, const PlanLaunch *l)
{
    if (l->family == LAUNCH_MOVE)
        return move_varies(l);
    if (l->family == LAUNCH_DECODE)
        return false;
    bool varies = false;
    for (int i = 0; i < l->num_operands; i++)
        varies = varies || columns_vary(plan, l->operand[i].tensor) ||
                 dim_varies(l->operand[i].row_div) || dim_varies(l->operand[i].row_mod);
    if (l->family != LAUNCH_GEMM)
        return varies;
    const PlanTensor *w = &plan->tensor[l->w];
    for (int i = 0; i < w->rank; i++)
        varies = varies || dim_varies(w->dim[i]);
    return varies || columns_vary(plan, l->a);
}

static int move_sizes(const PlanLaunch *l, const int64_t *size, int64_t *ret)
{
    for (int i = 0; i < LIMIT_RANK; i++) {
        bool is = i < l->move_rank;
        ret[SIZE_MOVE_DIM + i] = is ? plan_dim_eval(l->move_dim[i], size) : 1;
        ret[SIZE_MOVE_SRC + i] = is ? plan_dim_eval(l->move_src_stride[i], size) : 0;
        ret[SIZE_MOVE_DST + i] = is ? plan_dim_eval(l->move_dst_stride[i], size) : 0;
    }
    ret[SIZE_MOVE_AT] = plan_dim_eval(l->move_src_offset, size);
    ret[SIZE_MOVE_AT + 1] = plan_dim_eval(l->move_dst_offset, size);
    return SIZE_MOVE_AT + 2;
}

static int route_sizes(const PlanLaunch *l, const PlanLayout *layout, int64_t *ret)
{
    for (int i = 0; i < l->num_operands; i++) {
        ret[SIZE_ROUTE + 2 * i] = layout[l->operand[i].tensor].cols;
        ret[SIZE_ROUTE + 2 * i + 1] = layout[l->operand[i].tensor].pitch;
    }
    return SIZE_ROUTE + 2 * l->num_operands;
}

int plan_launch_sizes(const Plan *plan, const PlanLaunch *l, const PlanLayout *layout,
                      const int64_t *size, int64_t ret[MAX_SIZES])
{
    memset(ret + 1, 0, (SIZE_OPERANDS - 1) * sizeof *ret);
    if (!plan_launch_varies(plan, l))
        return 1;
    if (l->family == LAUNCH_MOVE)
        return move_sizes(l, size, ret);
    if (l->family == LAUNCH_ROUTE)
        return route_sizes(l, layout, ret);
    if (l->family == LAUNCH_TILE) {
        ret[SIZE_COLS] = layout[l->operand[0].tensor].cols;
    } else {
        ret[SIZE_K] = layout[l->a].cols;
        ret[SIZE_N] = layout[l->w].rows;
        ret[SIZE_A_PITCH] = layout[l->a].pitch;
        ret[SIZE_W_PITCH] = layout[l->w].pitch;
    }
    for (int i = 0; i < l->num_operands; i++) {
        const PlanOperand *o = &l->operand[i];
        int64_t mod = plan_dim_eval(o->row_mod, size);
        int64_t *at = ret + SIZE_OPERANDS + 3 * i;
        at[0] = layout[o->tensor].pitch;
        at[1] = plan_dim_eval(o->row_div, size);
        at[2] = mod ? mod : INT64_MAX;
    }
    return SIZE_OPERANDS + 3 * l->num_operands;
}

uint64_t device_workspace(const DeviceCode *code)
{
    int64_t most = 0;
    for (int i = 0; i < code->num_launches * code->num_buckets; i++)
        most = code->launch[i].workspace > most ? code->launch[i].workspace : most;
    return (uint64_t)most;
}

/* Every field in turn. */
static void put_launch(Bytes *b, const DeviceLaunch *l)
{
    const int32_t word[] = {l->kernel,     l->grid,        l->per_processor, l->cluster,
                            l->block,      l->smem,        l->num_maps,      l->looks_ahead,
                            l->first.runs, l->first.bytes, l->groups};
    for (size_t i = 0; i < COUNT_OF(word); i++)
        put_u64(b, (uint32_t)word[i], 4);
    put_u64(b, (uint64_t)l->workspace, 8);
    put_u64(b, (uint64_t)l->first.stride, 8);
    for (int i = 0; i < l->num_maps; i++) {
        const DeviceMap *m = &l->map[i];
        const int64_t field[] = {m->operand, m->element_bytes, m->box_rows,   m->box_bytes,
                                 m->swizzle, m->planes,        m->scales,     m->rows,
                                 m->bytes,   m->pitch,         m->plane_pitch};
        for (size_t k = 0; k < COUNT_OF(field); k++)
            put_u64(b, (uint64_t)field[k], 8);
    }
}

bool device_code_encode(const DeviceCode *code, Bytes *ret)
{
    *ret = (Bytes){0};
    put_u64(ret, CODE_MAGIC, 4);
    put_u64(ret, (uint64_t)code->num_kernels, 4);
    put_u64(ret, (uint64_t)code->num_images, 4);
    put_u64(ret, (uint64_t)code->num_launches, 4);
    put_u64(ret, (uint64_t)code->num_buckets, 4);
    for (int i = 0; i < code->num_kernels; i++) {
        char name[MAX_NAME] = {0};
        snprintf(name, sizeof name, "%s", code->kernel[i]);
        bytes_put(ret, name, sizeof name);
    }
    for (int i = 0; i < code->num_launches * code->num_buckets; i++)
        put_launch(ret, &code->launch[i]);
    for (int i = 0; i < code->num_images; i++) {
        const DeviceImage *image = &code->image[i];
        bytes_put(ret, image->arch, sizeof image->arch);
        put_u64(ret, (uint32_t)image->kernel, 4);
        put_u64(ret, image->size, 8);
        bytes_put(ret, image->data, (size_t)image->size);
    }
    return !ret->failed;
}

static const uint8_t *take(Reader *r, uint64_t size)
{
    if (size > (uint64_t)(r->end - r->pos)) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *at = r->pos;
    r->pos += size;
    return at;
}

static uint64_t get(Reader *r, int size)
{
    const uint8_t *at = take(r, (uint64_t)size);
    uint64_t v = 0;
    for (int i = 0; at && i < size; i++)
        v |= (uint64_t)at[i] << (8 * i);
    return v;
}

typedef struct CodeBox { /* code first: device_code_free casts back */
    DeviceCode code;
    Arena *arena;
} CodeBox;

static const char *read_names(Reader *r, CodeBox *box)
{
    const char **name = ARENA_NEW_ARRAY(box->arena, const char *, (size_t)box->code.num_kernels);
    for (int i = 0; i < box->code.num_kernels && !r->failed; i++) {
        const uint8_t *at = take(r, MAX_NAME);
        if (!at || !memchr(at, 0, MAX_NAME) || !at[0])
            return "an entry has no name";
        name[i] = (const char *)at;
    }
    box->code.kernel = name;
    return NULL;
}

static DeviceLaunch get_launch(Reader *r)
{
    DeviceLaunch l = {0};
    int32_t *word[] = {&l.kernel,     &l.grid,        &l.per_processor, &l.cluster,
                       &l.block,      &l.smem,        &l.num_maps,      &l.looks_ahead,
                       &l.first.runs, &l.first.bytes, &l.groups};
    for (size_t i = 0; i < COUNT_OF(word); i++)
        *word[i] = (int32_t)get(r, 4);
    l.workspace = (int64_t)get(r, 8);
    l.first.stride = (int64_t)get(r, 8);
    r->failed = r->failed || l.num_maps < 0 || l.num_maps > DEVICE_MAX_MAPS;
    for (int i = 0; i < l.num_maps && !r->failed; i++) {
        DeviceMap *m = &l.map[i];
        int32_t *narrow[] = {&m->operand, &m->element_bytes, &m->box_rows, &m->box_bytes,
                             &m->swizzle, &m->planes,        &m->scales};
        int64_t *wide[] = {&m->rows, &m->bytes, &m->pitch, &m->plane_pitch};
        for (size_t k = 0; k < COUNT_OF(narrow); k++)
            *narrow[k] = (int32_t)get(r, 8);
        for (size_t k = 0; k < COUNT_OF(wide); k++)
            *wide[k] = (int64_t)get(r, 8);
    }
    return l;
}

/* What the driver takes. That the matrix lies inside its tensor is known when it is bound. */
static bool map_ok(const DeviceMap *m, const PlanLaunch *l)
{
    bool element = m->element_bytes == 1 || m->element_bytes == 2 || m->element_bytes == 4;
    bool swizzle = m->swizzle == 0 || m->swizzle == 32 || m->swizzle == 64 || m->swizzle == 128;
    return element && swizzle && m->operand >= 0 && m->operand < plan_launch_parameters(l) &&
           m->box_rows >= 1 && m->box_rows <= 256 && m->box_bytes >= 16 && m->box_bytes % 16 == 0 &&
           m->box_bytes / m->element_bytes <= 256 && (!m->swizzle || m->box_bytes <= m->swizzle) &&
           (m->scales == 0 || (m->scales == 1 && m->element_bytes == 4 && !m->planes)) &&
           m->planes >= 0 && m->rows >= 0 && m->bytes >= 0 && m->pitch >= 0 && m->pitch % 16 == 0 &&
           m->plane_pitch >= 0 && m->plane_pitch % 16 == 0;
}

/* They lie in the weight: nobody is to fetch from elsewhere. */
static bool runs_ok(const DeviceRuns *r, const Plan *plan, const PlanLaunch *l)
{
    if (!r->runs)
        return true;
    if (l->family != LAUNCH_GEMM || !plan->tensor[l->w].packed)
        return false;
    uint64_t end = plan->tensor[l->w].bytes;
    return r->runs > 0 && r->bytes > 0 && r->stride >= 0 && r->bytes % 16 == 0 &&
           r->stride % 16 == 0 && (uint64_t)r->bytes <= end &&
           (r->stride == 0 ||
            (uint64_t)(r->runs - 1) <= (end - (uint64_t)r->bytes) / (uint64_t)r->stride);
}

static int32_t launch_groups(const Plan *plan, const PlanLaunch *l)
{
    bool grouped = l->family == LAUNCH_GEMM && l->grouped;
    return grouped ? (int32_t)plan->tensor[l->ends].dim[0].add : 0;
}

static bool launch_ok(const DeviceLaunch *d, const Plan *plan, const PlanLaunch *l)
{
    bool ok = d->grid >= 0 && d->per_processor >= 0 && d->cluster >= 0 && d->cluster <= 16 &&
              (d->cluster < 2 || d->grid % d->cluster == 0) && d->block >= 1 && d->block <= 1024 &&
              (d->groups == 0 || d->groups == launch_groups(plan, l)) && d->smem >= 0 &&
              d->workspace >= 0 && d->workspace <= (int64_t)LIMIT_BYTES &&
              (d->looks_ahead == 0 || d->looks_ahead == 1) && runs_ok(&d->first, plan, l);
    for (int i = 0; i < d->num_maps && ok; i++)
        ok = map_ok(&d->map[i], l);
    return ok;
}

static const char *read_launches(Reader *r, CodeBox *box, const Plan *plan)
{
    DeviceCode *code = &box->code;
    size_t num = (size_t)code->num_launches * (size_t)code->num_buckets;
    if (num > (uint64_t)(r->end - r->pos) / 60)
        return "it ends too early";
    DeviceLaunch *launch = ARENA_NEW_ARRAY(box->arena, DeviceLaunch, num);
    for (size_t i = 0; i < num; i++) {
        launch[i] = get_launch(r);
        if (r->failed)
            return "it ends too early";
        if (launch[i].kernel < -1 || launch[i].kernel >= code->num_kernels)
            return "a launch names a kernel that is not there";
        if (launch[i].kernel >= 0 &&
            !launch_ok(&launch[i], plan, &plan->launch[i / (size_t)code->num_buckets]))
            return "the shape of a launch is out of range";
    }
    code->launch = launch;
    return NULL;
}

static const char *read_images(Reader *r, CodeBox *box)
{
    DeviceCode *code = &box->code;
    DeviceImage *image = ARENA_NEW_ARRAY(box->arena, DeviceImage, (size_t)code->num_images);
    for (int i = 0; i < code->num_images; i++) {
        const uint8_t *arch = take(r, sizeof image->arch);
        if (!arch || !memchr(arch, 0, sizeof image->arch))
            return "an image has no architecture";
        memcpy(image[i].arch, arch, sizeof image->arch);
        image[i].kernel = (int32_t)get(r, 4);
        image[i].size = get(r, 8);
        image[i].data = take(r, image[i].size);
        if (r->failed || image[i].kernel < 0 || image[i].kernel >= code->num_kernels)
            return "an image is cut short or belongs to no kernel";
    }
    code->image = image;
    return NULL;
}

static const char *read_code(Reader *r, CodeBox *box, const Plan *plan)
{
    DeviceCode *code = &box->code;
    if (get(r, 4) != CODE_MAGIC)
        return "its magic is unknown";
    uint64_t kernels = get(r, 4), images = get(r, 4), launches = get(r, 4), buckets = get(r, 4);
    if (r->failed || kernels > MAX_KERNELS || images > MAX_IMAGES ||
        launches != (uint64_t)plan->num_launches || buckets != (uint64_t)plan->num_buckets)
        return "it does not belong to the plan";
    code->num_kernels = (int)kernels;
    code->num_images = (int)images;
    code->num_launches = (int)launches;
    code->num_buckets = (int)buckets;
    const char *problem = read_names(r, box);
    if (!problem)
        problem = read_launches(r, box, plan);
    if (!problem)
        problem = read_images(r, box);
    return problem ? problem : r->pos != r->end ? "bytes follow its end" : NULL;
}

DeviceCode *device_code_decode(const uint8_t *data, size_t size, const Plan *plan, IoError *err)
{
    Arena *volatile arena = arena_create();
    jmp_buf exhausted;
    if (!arena || setjmp(exhausted)) {
        arena_destroy(arena);
        *err = (IoError){.id = E_MEMORY, .text = "memory is exhausted while reading device code"};
        return NULL;
    }
    arena_on_exhausted(arena, &exhausted);
    CodeBox *box = ARENA_NEW(arena, CodeBox);
    box->arena = arena;
    Reader r = {.pos = data, .end = data + size};
    const char *problem = read_code(&r, box, plan);
    if (problem) {
        err->id = E_PLAN;
        snprintf(err->text, sizeof err->text, "the device code cannot be read: %s", problem);
        arena_destroy(arena);
        return NULL;
    }
    arena_on_exhausted(arena, NULL);
    return &box->code;
}

void device_code_free(DeviceCode *code)
{
    if (code)
        arena_destroy(((CodeBox *)code)->arena);
}
