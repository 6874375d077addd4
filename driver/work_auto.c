/* auto { .. }: the choice of formats, before a text is compiled with its outcome. */
#include "driver/work.h"
#include <string.h>
#include <unistd.h>

/* The same text with the rules of the choice, behind those of files and before the variant's own.
 * Warnings of the text were said the first time. */
static bool lower_chosen(Work *w, const FrontendOptions *options)
{
    int num = options->num_rule_files, at = w->variant.extra ? num - 1 : num;
    const char **file = ARENA_NEW_ARRAY(w->arena, const char *, (size_t)num + 1);
    const char **text = ARENA_NEW_ARRAY(w->arena, const char *, (size_t)num + 1);
    FrontendOptions with = *options;
    Diag before = w->diag;
    for (int i = 0; i < num; i++) {
        file[i < at ? i : i + 1] = options->rule_file[i];
        text[i < at ? i : i + 1] = options->rule_text ? options->rule_text[i] : NULL;
    }
    file[at] = "<auto>";
    text[at] = w->choice->rules;
    with.num_rule_files++;
    with.rule_file = file;
    with.rule_text = text;
    Ast *ast = ast_parse(w->arena, &w->diag, 1);
    w->module = ast && ast_check(ast, &w->diag, &with) ? ast_lower(ast, w->arena, &w->diag) : NULL;
    if (!w->module || w->diag.num_errors)
        return false;
    *before.last = NULL;
    w->diag.last = before.last;
    w->diag.current = before.current;
    w->diag.num_warnings = before.num_warnings;
    return true;
}

/* --data, --front */
static bool put_outputs(Work *w)
{
    const char *data = cli_get(w->cli, OPTION_DATA, NULL);
    const char *front = cli_get(w->cli, OPTION_FRONT, NULL);
    Sb sb;
    sb_init(&sb, w->arena);
    if (data)
        choice_json(&sb, w->choice);
    bool ok = !data || work_put(w, data, sb.text, sb.len);
    sb_init(&sb, w->arena);
    if (front)
        choice_svg(&sb, w->choice);
    return ok && (!front || work_put(w, front, sb.text, sb.len));
}

static void print_choice(Work *w)
{
    Sb sb;
    sb_init(&sb, w->arena);
    choice_print(&sb, w->choice);
    if (w->cli->command == COMMAND_CHOOSE)
        fputs(sb.text, stdout);
    else if (!w->cli->json)
        fputs(sb.text, stderr);
}

static bool no_device(Work *w, const char *why)
{
    diag_error(&w->diag, (Span){0}, E_NO_DEVICE, "%s", why);
    return false;
}

/* The plan that the GPU runs; NULL: --target has none. */
static const WorkGpu *plan_for(const Work *w, int capability)
{
    const WorkGpu *best = NULL;
    for (int i = 0; i < w->num_gpus; i++)
        if (code_class_serves(w->gpu[i].gpu, capability) && (!best || w->gpu[i].gpu < best->gpu))
            best = &w->gpu[i];
    return best;
}

/* The GPU that --device names, where candidates are run and timed: *ret has no name where it is the
 * processor. False after an error. */
static bool find_device(Work *w, ChooseDevice *ret, const WorkGpu **ret_gpu)
{
    const char *why = NULL, *name = work_device(w);
    *ret = (ChooseDevice){.argv = w->cli->argv};
    if (!name || !strcmp(name, "cpu"))
        return true;
    if (!work_gpu(name, &ret->ordinal)) {
        diag_error(&w->diag, (Span){0}, E_USAGE, "--device takes cpu or cuda:N, not '%s'", name);
        return false;
    }
    Clock clock = {.arena = w->arena, .argv = ret->argv, .ordinal = ret->ordinal};
    if (clock_look(&clock, &ret->gpu, &why) != CLOCK_FINE)
        return no_device(w, arena_printf(w->arena, "cuda:%d: %s", ret->ordinal, why));
    *ret_gpu = plan_for(w, ret->gpu.capability);
    if (!*ret_gpu)
        return no_device(w, arena_printf(w->arena,
                                         "cuda:%d is of compute capability %d.%d, and --target has "
                                         "no plan for that",
                                         ret->ordinal, ret->gpu.capability / 10,
                                         ret->gpu.capability % 10));
    ret->name = arena_printf(w->arena, "cuda:%d", ret->ordinal);
    ret->kind =
        timing_gpu_name(w->arena, ret->gpu.capability, ret->gpu.processors, ret->gpu.memory);
    ret->num_archs = (*ret_gpu)->num_archs;
    ret->arch = (*ret_gpu)->arch;
    return true;
}

/* The table of the GPU at hand, where there is one; a table of another one is refused, if it was
 * asked for. */
static bool find_timings(Work *w, const WorkGpu *gpu, const ChooseDevice *device, Timings *ret)
{
    const char *which = cli_get(w->cli, OPTION_TIMING, NULL);
    if (!timings_open(ret, w->arena, &w->diag, which, gpu->num_archs, gpu->arch))
        return false;
    if (!device || !ret->gpu || !strcmp(ret->gpu, device->kind))
        return true;
    size_t len;
    const char *own = timing_own_path(w->arena, device->kind, false);
    if (!which && (timing_shipped(device->kind, &len) || (own && access(own, R_OK) == 0)))
        return timings_open(ret, w->arena, &w->diag, device->kind, gpu->num_archs, gpu->arch);
    if (!which)
        return true; /* closer than the cost model, to choose kernels by */
    diag_error(&w->diag, (Span){0}, E_TIMING, "--timing=%s is of the GPU %s, but %s is %s", which,
               ret->gpu, device->name, device->kind);
    diag_help(&w->diag, "without --timing its own table is taken, if there is one");
    return false;
}

/* What is given for `auto` alone would be neither read nor written: an error, said of the option.
 */
static bool refuse_idle(Work *w, const char *why)
{
    static const struct {
        OptionId id;
        const char *what;
    } option[] = {{OPTION_TIMES, "gives 'auto' its times"},
                  {OPTION_ERRORS, "gives 'auto' its errors"},
                  {OPTION_DATA, "writes what 'auto' came to"},
                  {OPTION_FRONT, "draws what 'auto' came to"}};
    for (size_t i = 0; i < COUNT_OF(option); i++) {
        if (!cli_has(w->cli, option[i].id))
            continue;
        diag_error(&w->diag, (Span){0}, E_AUTO, "--%s %s, but %s", option_info[option[i].id].name,
                   option[i].what, why);
        diag_help(&w->diag, "leave the option out, or write an 'auto': docs/auto.md shows one");
        return false;
    }
    return true;
}

static bool settle(Work *w, const FrontendOptions *options)
{
    const Cli *cli = w->cli;
    const Source *source = &w->diag.sources.elem[0];
    const WorkGpu *gpu = w->num_gpus ? &w->gpu[0] : NULL; /* the best decides */
    ChooseDevice device;
    Timings timings;
    if (!find_device(w, &device, &gpu))
        return false;
    ChooseOptions choose = {
        .name = source->name,
        .text = source->text,
        .len = source->len,
        .frontend = *options,
        .passes = w->passes.options,
        .no_measure = cli_has(cli, OPTION_NO_MEASURE),
        .times = cli_get(cli, OPTION_TIMES, NULL),
        .errors = cli_get(cli, OPTION_ERRORS, NULL),
        .gpu = gpu ? gpu->gpu : NULL,
        .device = device.name ? &device : NULL,
        .progress = work_progress(w),
        .user = w,
    };
    if (gpu && !find_timings(w, gpu, choose.device, &timings))
        return false;
    choose.timings = gpu ? &timings : NULL;
    choose.copies = work_copies(w);
    choose.decode = work_decode(w);
    choose.layout = work_layout(w);
    if (!work_threads(w, &choose.threads))
        return false;
    w->choice = choose_run(w->arena, &w->diag, w->module, &choose);
    if (!w->choice)
        return false;
    w->is_slower = w->choice->num_slower && w->choice->spec->slower == SLOWER_ERROR;
    bool settled = !w->choice->rules; /* by rules of the text */
    if (!settled)
        w->choice->standing =
            rules_standing(w->arena, &w->diag, options->num_rule_files, w->choice->rules);
    if (!settled || w->cli->command == COMMAND_CHOOSE)
        print_choice(w);
    if (settled)
        return refuse_idle(w, "rules of the text say the formats of all layers");
    return put_outputs(w) && !w->diag.num_errors && lower_chosen(w, options);
}

/* The outcome for another variant of the same model. */
static bool settle_again(Work *w, const FrontendOptions *options)
{
    w->choice = w->variant.choice;
    return !w->choice->rules || lower_chosen(w, options);
}

/* Tables of timings choose between kernels of GPUs. */
static bool refuse_timing(Work *w)
{
    const char *which = cli_get(w->cli, OPTION_TIMING, "none"), *device = work_device(w);
    const char *target = cli_get(w->cli, OPTION_TARGET, device ? device : "cpu");
    if (!strcmp(which, "none") || strcmp(target, "cpu") != 0)
        return true;
    diag_error(&w->diag, (Span){0}, E_USAGE,
               "--timing=%s chooses kernels of GPUs, but the file is for the processor alone",
               which);
    diag_help(&w->diag, "name the GPU that it is for: --target=sm_90a, or native; 'sinter targets' "
                        "lists them");
    return false;
}

/* A comparison's other rules may have an `auto` where the text has none. */
static bool options_count(Work *w, const FrontendOptions *options)
{
    bool against = w->cli->command == COMMAND_EVAL && cli_has(w->cli, OPTION_AGAINST);
    return refuse_timing(w) && (w->module->automatic || options->unquantised || against ||
                                refuse_idle(w, "the text has no 'auto'"));
}

bool work_auto(Work *w, const FrontendOptions *options)
{
    if (!options_count(w, options))
        return false;
    bool only_checked = w->cli->command == COMMAND_CHECK || cli_has(w->cli, OPTION_NO_WEIGHTS) ||
                        (w->variant.only_planned && !w->variant.choice);
    return !w->module->automatic || only_checked || options->unquantised ||
           (w->variant.choice ? settle_again(w, options) : work_targets(w) && settle(w, options));
}
