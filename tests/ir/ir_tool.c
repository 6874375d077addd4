/* What the tests of this folder drive.
 * usage: ir_tool print FILE     parse, verify, print; errors to stderr, exit code 1
 *        ir_tool refuse FILE   the texts after the "==== name" lines of FILE must all be refused:
 *                               the errors of each to standard output
 *        ir_tool doc FILE       each ```ir block of a Markdown file must print as itself, and
 *                               every op must occur: TAP
 *        ir_tool eval FILE...   evaluate each module and compare its outputs "y" with its outputs
 *                               "y.want", to "y.tol" times max(1, |want|) where there is one, bit
 *                               for bit (any NaN equals any other) where not: TAP */
#include "ir/ir.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static char *read_all(Arena *arena, const char *path, size_t *ret_len)
{
    FILE *file = fopen(path, "rb");
    size_t cap = 1 << 20;
    char *text = arena_alloc(arena, cap + 1);
    *ret_len = file ? fread(text, 1, cap, file) : 0;
    text[*ret_len] = 0;
    if (file)
        fclose(file);
    return file ? text : NULL;
}

static bool op_seen[NUM_OPS];

static void see_ops(const Block *block)
{
    for_each_op(op, block) {
        op_seen[op->kind] = true;
        if (op->body)
            see_ops(op->body);
    }
}

static char *print_text(Arena *arena, Diag *diag, const char *name, const char *text, size_t len)
{
    Sb sb;
    sb_init(&sb, arena);
    Module *m = module_parse(arena, diag, diag_add_source(diag, name, text, len));
    if (!m || !module_verify(m, "parse"))
        return NULL;
    module_print(&sb, m, false);
    see_ops(&m->body);
    return sb.text;
}

static int print_file(Arena *arena, Diag *diag, const char *path)
{
    size_t len;
    char *text = read_all(arena, path, &len);
    char *printed = text ? print_text(arena, diag, path, text, len) : NULL;
    diag_print(diag, stderr, false);
    if (printed)
        fputs(printed, stdout);
    return printed ? 0 : 1;
}

static int refuse_file(Arena *arena, const char *path)
{
    size_t len;
    char *text = read_all(arena, path, &len), *next;
    int accepted = 0;
    for (char *at = text; at && strncmp(at, "==== ", 5) == 0; at = next) {
        char *body = strchr(at, '\n') + 1;
        next = strstr(body - 1, "\n====");
        next = next ? next + 1 : text + len;
        char *name = arena_strndup(arena, at + 5, (size_t)(body - at) - 6);
        size_t size = (size_t)(next - body);
        Diag diag;
        diag_init(&diag, arena);
        printf("==== %s\n", name);
        uint32_t source = diag_add_source(&diag, name, arena_strndup(arena, body, size), size);
        if (module_parse(arena, &diag, source) || !diag.num_errors) {
            printf("accepted\n");
            accepted++;
        }
        diag_print(&diag, stdout, false);
    }
    return accepted ? 1 : 0;
}

static int doc_file(Arena *arena, Diag *diag, const char *path)
{
    size_t len;
    int num = 0, failed = 0;
    char *text = read_all(arena, path, &len);
    static const char fence[] = "\n```ir\n";
    for (char *at = text; at && (at = strstr(at, fence));) {
        char *begin = at + strlen(fence), *end = strstr(begin, "```\n");
        size_t block = end ? (size_t)(end - begin) : 0;
        char *printed = print_text(arena, diag, path, begin, block);
        bool same = printed && strlen(printed) == block && memcmp(printed, begin, block) == 0;
        printf("%s %d - block %d\n", same ? "ok" : "not ok", num + 1, num + 1);
        if (printed && !same)
            fprintf(stderr, "%s: block %d prints as\n%s", path, num + 1, printed);
        failed += !same;
        num++;
        at = end;
    }
    diag_print(diag, stderr, false);
    for (int kind = 0; kind < NUM_OPS; kind++) {
        printf("%s %d - %s has an example\n", op_seen[kind] ? "ok" : "not ok", ++num,
               op_info[kind].name);
        failed += !op_seen[kind];
    }
    printf("1..%d\n", num);
    return failed != 0;
}

static double element(const Tensor *t, uint64_t index)
{
    double value;
    if (t->fmt == FMT_I32)
        return ((const int32_t *)t->data)[index];
    format_to_f64(t->fmt, (const char *)t->data + index * (uint64_t)format_info[t->fmt].bits / 8,
                  &value, 1);
    return value;
}

static bool is_close(double got, double want, double tol)
{
    if (isnan(want))
        return isnan(got);
    if (got == want) /* a sum may end as either zero where a tolerance is given */
        return tol > 0 || signbit(got) == signbit(want);
    return fabs(got - want) <= tol * fmax(1, fabs(want));
}

static const char *compare(const Eval *e, const char *name, double least)
{
    static char why[256];
    char key[128];
    const Tensor *got = eval_output(e, name);
    snprintf(key, sizeof key, "%s.want", name);
    const Tensor *want = eval_output(e, key);
    snprintf(key, sizeof key, "%s.tol", name);
    const Tensor *tol = eval_output(e, key);
    if (!got || !want)
        return "an output is missing";
    if (got->rank != want->rank || memcmp(got->dim, want->dim, sizeof got->dim) != 0)
        return "the shapes differ";
    double bound = fmax(tol ? element(tol, 0) : 0, least);
    for (uint64_t i = 0; i < tensor_elements(want); i++) {
        if (is_close(element(got, i), element(want, i), bound))
            continue;
        snprintf(why, sizeof why, "element %llu of %s is %.9g, not %.9g", (unsigned long long)i,
                 name, element(got, i), element(want, i));
        return why;
    }
    return NULL;
}

/* In EVAL_F64 the expected numbers, which are f32, hold to their own precision. */
static const char *eval_module(const Module *m, EvalMode mode)
{
    const char *why = NULL;
    int compared = 0;
    Eval *e = eval_create(m, mode, NULL);
    eval_run(e, NULL, NULL, &why);
    for_each_op(op, &m->body) {
        if (why || op->kind != OP_OUTPUT || strchr(op->name, '.'))
            continue;
        why = compare(e, op->name, mode == EVAL_F64 ? 1e-6 : 0);
        compared++;
    }
    static char copy[512];
    snprintf(copy, sizeof copy, "%s", why ? why : compared ? "" : "nothing was compared");
    eval_destroy(e);
    return *copy ? copy : NULL;
}

static int eval_files(Arena *arena, Diag *diag, int num, char **path)
{
    int failed = 0;
    printf("1..%d\n", num * 2);
    for (int i = 0; i < num * 2; i++) {
        size_t len;
        char *text = read_all(arena, path[i / 2], &len);
        Module *m =
            text ? module_parse(arena, diag, diag_add_source(diag, path[i / 2], text, len)) : NULL;
        const char *why = m ? eval_module(m, i % 2 ? EVAL_F64 : EVAL_CONTRACT) : "does not parse";
        printf("%s %d - %s %s\n", why ? "not ok" : "ok", i + 1, path[i / 2],
               i % 2 ? "in f64" : "by the contract");
        if (why)
            printf("# %s\n", why);
        failed += why != NULL;
    }
    diag_print(diag, stderr, false);
    return failed != 0;
}

int main(int argc, char **argv)
{
    Arena *arena = arena_create();
    Diag diag;
    int rc = 2;
    diag_init(&diag, arena);
    if (argc == 3 && strcmp(argv[1], "print") == 0)
        rc = print_file(arena, &diag, argv[2]);
    else if (argc == 3 && strcmp(argv[1], "refuse") == 0)
        rc = refuse_file(arena, argv[2]);
    else if (argc == 3 && strcmp(argv[1], "doc") == 0)
        rc = doc_file(arena, &diag, argv[2]);
    else if (argc >= 3 && strcmp(argv[1], "eval") == 0)
        rc = eval_files(arena, &diag, argc - 2, argv + 2);
    arena_destroy(arena);
    return rc;
}
