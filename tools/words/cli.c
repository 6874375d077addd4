/* The words of the command line: parsing against commands.def and options.def, and the help. */
#include "tools/words/cli.h"
#include "base/limits.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const CommandInfo command_info[NUM_COMMANDS] = {
#define COMMAND(ID, name, operands, min, max, run, describe) \
    [COMMAND_##ID] = {name, operands, describe, min, max, cmd_##run},
#include "tools/words/commands.def"
#undef COMMAND
};

const OptionInfo option_info[NUM_OPTIONS] = {
#define OPTION(ID, letter, name, arg, commands, describe) \
    [OPTION_##ID] = {letter, name, arg, describe, commands},
#include "tools/words/options.def"
#undef OPTION
};

static const OptionGroup option_group[NUM_OPTIONS] = {
#define OPTION_GROUP(ID, title)
#define OPTION_IN(ID, group) [OPTION_##ID] = OPTION_GROUP_##group,
#include "tools/words/groups.def"
#undef OPTION_GROUP
#undef OPTION_IN
};

static const char *const group_title[NUM_OPTION_GROUPS] = {
#define OPTION_GROUP(ID, title) [OPTION_GROUP_##ID] = title,
#define OPTION_IN(ID, group)
#include "tools/words/groups.def"
#undef OPTION_GROUP
#undef OPTION_IN
};

/* Help ---------------------------------------------------------------------------------------- */

static const char *const examples[NUM_COMMANDS] = {
    [COMMAND_CHECK] = "  sinter check --no-weights mlp.sinter\n",
    [COMMAND_COMPILE] = "  sinter compile mlp.sinter -o mlp && ./mlp --help\n"
                        "  sinter compile mlp.sinter --rules w4a16.sinter -o mlp4\n",
    [COMMAND_RUN] = "  sinter run mlp.sinter --input x=x.npy --output y=y.npy\n",
    [COMMAND_EVAL] = "  sinter eval mlp.sinter\n"
                     "  sinter eval mlp.sinter --input x=x.npy --labels labels.npy\n"
                     "  sinter eval mlp.sinter --rules int8.rules --against float\n",
    [COMMAND_BENCH] = "  sinter bench mlp.sinter --bucket B=64 --threads 2\n",
    [COMMAND_INIT] = "  sinter init Llama-3.2-1B -o llama.sinter && sinter check llama.sinter\n"
                     "  sinter init wine.safetensors -o wine.sinter\n",
    [COMMAND_EXPLAIN] = "  sinter explain E0201\n  sinter explain mlp.sinter\n",
    [COMMAND_SHOW] = "  sinter show mlp.sinter --emit=svg --after=lower -o before.svg\n"
                     "  sinter show mlp.sinter --emit=svg --after=fuse -o after.svg\n",
    [COMMAND_REPORT] = "  sinter report mlp.sinter -o mlp.html\n"
                       "  sinter report mlp.sinter --rules int8.rules --input x=x.npy "
                       "--json mlp.json\n",
    [COMMAND_OPT] = "  sinter show mlp.sinter --after=lower -o mlp.ir\n"
                    "  sinter opt --passes=bind-weights,fuse --check-eval mlp.ir -o fused.ir\n",
    [COMMAND_FMT] = "  sinter fmt -i mlp.sinter\n",
    [COMMAND_INSPECT] = "  sinter inspect mlp\n",
    [COMMAND_IMPORT] = "  sinter import Qwen3-8B-GPTQ\n"
                       "  sinter import Qwen3-8B-AWQ --against Qwen3-8B\n"
                       "  sinter import model.onnx -o model\n",
    [COMMAND_QUANTISE] = "  sinter quantise llama.sinter --rules w4a16.rules -o Llama-W4A16\n"
                         "  sinter quantise llama.sinter --rules w4.rules --format=gptq -o L4\n",
    [COMMAND_TUNE] = "  sinter tune mlp.sinter --bucket T=16\n"
                     "  sinter tune mlp.sinter --max-seconds=60 -o h200.timing\n",
    [COMMAND_CALIBRATE] = "  sinter calibrate mlp.sinter\n",
};

/* "-o FILE" or "    --rules=FILE", then the description at `column`. */
void cli_print_option(FILE *out, const OptionInfo *option, int column)
{
    char left[64];
    bool has_arg = option->arg[0] != 0;
    if (option->letter && option->name[0])
        snprintf(left, sizeof left, "  -%c, --%s", option->letter, option->name);
    else if (option->letter)
        snprintf(left, sizeof left, "  -%c%s%s", option->letter, has_arg ? " " : "", option->arg);
    else
        snprintf(left, sizeof left, "      --%s%s%s", option->name, has_arg ? "=" : "",
                 option->arg);
    if ((int)strlen(left) + 2 > column)
        fprintf(out, "%s\n%*s%s\n", left, column, "", option->describe);
    else
        fprintf(out, "%-*s%s\n", column, left, option->describe);
}

/* Fits a screen of 24 lines by 80 columns. */
static void print_help(void)
{
    puts("sinter compiles a text of quantised linear layers into a program and model\n");
    for (int i = 0; i < NUM_COMMANDS; i++)
        printf("  sinter %-9s %-10s  %s\n", command_info[i].name, command_info[i].operands,
               command_info[i].describe);
    puts("'sinter help COMMAND' lists the options of a command. Examples:\n"
         "  sinter explain E0201           # what an error code means");
}

static void print_group(CommandId command, OptionGroup group)
{
    bool any = false;
    for (int i = 0; i < NUM_OPTIONS; i++) {
        if (option_group[i] != group || !(option_info[i].commands & 1u << command))
            continue;
        if (!any)
            printf("\n%s:\n", group_title[group]);
        any = true;
        cli_print_option(stdout, &option_info[i], 28);
    }
}

static int print_command_help(CommandId command)
{
    const CommandInfo *info = &command_info[command];
    printf("sinter %s [options] %s\n  %s\n", info->name, info->operands, info->describe);
    for (OptionGroup group = 0; group < NUM_OPTION_GROUPS; group++)
        print_group(command, group);
    if (examples[command])
        printf("\nExamples:\n%s", examples[command]);
    return EXIT_OK;
}

/* Errors -------------------------------------------------------------------------------------- */

/* Under --diagnostics=json a usage error is one object a line too, like every diagnostic. */
static void print_problem(const Cli *cli, const char *text, const char *help)
{
    if (cli->json) {
        Sb sb;
        sb_init(&sb, cli->arena);
        sb_put(&sb, "{\"severity\":\"error\",\"code\":\"E1001\",\"message\":");
        sb_put_json_string(&sb, text, strlen(text));
        sb_put(&sb, ",\"children\":[{\"severity\":\"help\",\"message\":");
        sb_put_json_string(&sb, help, strlen(help));
        sb_put(&sb, "}]}\n");
        fputs(sb.text, stderr);
    } else {
        fprintf(stderr, "sinter: error: %s\n  help: %s\n", text, help);
    }
}

static const char *command_hint(const Cli *cli)
{
    if (cli->command == NUM_COMMANDS)
        return "'sinter --help' lists the commands";
    return arena_printf(cli->arena, "'sinter help %s' lists its options",
                        command_info[cli->command].name);
}

int cli_usage(const Cli *cli, const char *fmt, ...)
{
    Sb sb;
    va_list args;
    sb_init(&sb, cli->arena);
    va_start(args, fmt);
    sb_vprintf(&sb, fmt, args);
    va_end(args);
    print_problem(cli, sb.text, command_hint(cli));
    return EXIT_USAGE;
}

static int unknown(const Cli *cli, const char *what, const char *word, const Nearest *nearest,
                   const char *dashes)
{
    const char *text = arena_printf(cli->arena, "unknown %s '%s'", what, word);
    const char *best = nearest_get(nearest);
    print_problem(cli, text,
                  best ? arena_printf(cli->arena, "did you mean '%s%s'?", dashes, best)
                       : command_hint(cli));
    return EXIT_USAGE;
}

static CommandId find_command(const char *word, Nearest *nearest)
{
    nearest_init(nearest, word);
    for (int i = 0; i < NUM_COMMANDS; i++) {
        if (!strcmp(command_info[i].name, word))
            return (CommandId)i;
        nearest_offer(nearest, command_info[i].name);
    }
    nearest_offer(nearest, "help");
    return NUM_COMMANDS;
}

/* Options ------------------------------------------------------------------------------------- */

static bool word_in(const char *list, char separator, const char *word, size_t len)
{
    for (const char *at = list; at; at = strchr(at, separator) ? strchr(at, separator) + 1 : NULL) {
        const char *end = strchr(at, separator);
        size_t num = end ? (size_t)(end - at) : strlen(at);
        if (num == len && !memcmp(at, word, len))
            return true;
    }
    return false;
}

/* The table's own check of a value: choices, lists of choices, NAME=..; *ret_exit on failure. */
static bool check_value(const Cli *cli, const OptionInfo *option, const char *shown,
                        const char *value, int *ret_exit)
{
    bool choice = strchr(option->arg, '|') != NULL;
    bool list = strchr(option->arg, ',') != NULL;
    bool pair = !strncmp(option->arg, "NAME=", 5) && strcmp(option->arg, "NAME=FILE") != 0;
    bool ok = true;
    if (choice)
        ok = word_in(option->arg, '|', value, strlen(value));
    for (const char *at = value; list && ok && at;) {
        const char *end = strchr(at, ',');
        ok = word_in(option->arg, ',', at, end ? (size_t)(end - at) : strlen(at));
        at = end ? end + 1 : NULL;
    }
    if (pair) {
        char *end = NULL;
        const char *equals = strchr(value, '=');
        if (equals)
            (void)strtoll(equals + 1, &end, 10);
        ok = equals && equals > value && equals[1] && end && !*end;
    }
    if (!ok)
        *ret_exit = cli_usage(cli, "%s takes %s%s, not '%s'", shown, choice ? "one of " : "",
                              option->arg, value);
    return ok;
}

/* Whether an option's values add up; of the others the last would hide what was said before. */
static bool may_repeat(OptionId id)
{
    switch (id) {
    case OPTION_DEFINE:
    case OPTION_RULES:
    case OPTION_WEIGHTS:
    case OPTION_INPUT:
    case OPTION_OUTPUT:
    case OPTION_BUCKET: return true;
    default: return !option_info[id].arg[0];
    }
}

/* The option that a word names, NUM_OPTIONS if none; *ret_value points after '=' or the letter. */
static OptionId find_option(const Cli *cli, const char *word, const char **ret_value,
                            Nearest *nearest)
{
    *ret_value = NULL;
    if (word[1] != '-') {
        for (int i = 0; i < NUM_OPTIONS; i++)
            if (option_info[i].letter == word[1] &&
                (option_info[i].commands & 1u << cli->command)) {
                *ret_value = word[2] ? word + 2 : NULL;
                return (OptionId)i;
            }
        nearest_init(nearest, word + 1);
        return NUM_OPTIONS;
    }
    const char *equals = strchr(word, '=');
    size_t len = equals ? (size_t)(equals - word - 2) : strlen(word + 2);
    nearest_init(nearest, arena_strndup(cli->arena, word + 2, len));
    for (int i = 0; i < NUM_OPTIONS; i++) {
        const OptionInfo *option = &option_info[i];
        if (!option->name[0] || !(option->commands & 1u << cli->command))
            continue;
        if (strlen(option->name) == len && !memcmp(option->name, word + 2, len)) {
            *ret_value = equals ? equals + 1 : NULL;
            return (OptionId)i;
        }
        nearest_offer(nearest, option->name);
    }
    return NUM_OPTIONS;
}

/* Reads the option at argv[*at] and its value; advances *at to the last word it used. */
static bool parse_option(Cli *cli, int argc, char **argv, int *at, int *ret_exit)
{
    const char *word = argv[*at];
    const char *value;
    Nearest nearest;
    OptionId id = find_option(cli, word, &value, &nearest);
    if (id == NUM_OPTIONS) {
        *ret_exit = unknown(cli, "option", word, &nearest, "--");
        return false;
    }
    const OptionInfo *option = &option_info[id];
    const char *shown = option->name[0] ? arena_printf(cli->arena, "--%s", option->name)
                                        : arena_printf(cli->arena, "-%c", option->letter);
    if (!option->arg[0] && value) {
        *ret_exit = cli_usage(cli, "%s takes no value, but '%s' was given", shown, value);
        return false;
    }
    if (option->arg[0] && !value) {
        if (*at + 1 == argc) {
            *ret_exit = cli_usage(cli, "%s needs a value: %s", shown, option->arg);
            return false;
        }
        value = argv[++*at];
    }
    if (option->arg[0] && !*value) {
        *ret_exit = cli_usage(cli, "%s needs a value, not '': %s", shown, option->arg);
        return false;
    }
    if (option->arg[0] && !check_value(cli, option, shown, value, ret_exit))
        return false;
    if (cli_has(cli, id) && !may_repeat(id)) {
        *ret_exit = cli_usage(cli, "%s takes one value, but was given '%s' and '%s'", shown,
                              cli_get(cli, id, ""), value);
        return false;
    }
    ARRAY_PUSH(cli->arena, &cli->value[id], value ? value : "");
    return true;
}

/* --color, --diagnostics are needed to report the rest: looked up before anything is parsed. */
static void parse_early(Cli *cli, int argc, char **argv)
{
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    cli->color =
        isatty(STDERR_FILENO) && !(no_color && *no_color) && !(term && !strcmp(term, "dumb"));
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        bool pair = i + 1 < argc;
        if (!strcmp(argv[i], "--diagnostics=json") ||
            (pair && !strcmp(argv[i], "--diagnostics") && !strcmp(argv[i + 1], "json")))
            cli->json = true;
        if (!strcmp(argv[i], "--color=always") ||
            (pair && !strcmp(argv[i], "--color") && !strcmp(argv[i + 1], "always")))
            cli->color = true;
        if (!strcmp(argv[i], "--color=never") ||
            (pair && !strcmp(argv[i], "--color") && !strcmp(argv[i + 1], "never")))
            cli->color = false;
    }
}

bool cli_claim(const Cli *cli, const char *option, const char *path, int *ret_exit)
{
    const char *other;
    if (!strcmp(path, "-") || outputs_add(option, path, &other))
        return true;
    if (!other)
        *ret_exit = cli_usage(cli, "more files than %d are to be written", LIMIT_OUTPUTS);
    else
        *ret_exit = cli_usage(cli, "%s and %s would both write '%s'", other, option, path);
    return false;
}

/* No file that the options name as an output is read from here on. sinter tune goes on with the
 * table that it writes, and refuses whatever is none. */
static bool claim_outputs(const Cli *cli, int *ret_exit)
{
    if (!strcmp(cli_get(cli, OPTION_OUTPUT_FOLDER, ""), "-")) {
        *ret_exit = cli_usage(cli, "-o names a folder, and '-' is standard output; './-' would be "
                                   "a folder of that name");
        return false;
    }
    static const OptionId writes[] = {OPTION_OUTPUT_FILE, OPTION_OUTPUT, OPTION_DATA,
                                      OPTION_FRONT,       OPTION_TRACE,  OPTION_JSON_FILE,
                                      OPTION_BENCH_JSON};
    for (size_t i = 0; i < COUNT_OF(writes) && cli->command != COMMAND_TUNE; i++) {
        const OptionInfo *option = &option_info[writes[i]];
        const char *shown = option->name[0] ? arena_printf(cli->arena, "--%s", option->name) : "-o";
        for (int k = 0; k < cli->value[writes[i]].num; k++) {
            const char *path = cli->value[writes[i]].elem[k];
            if (writes[i] == OPTION_OUTPUT && strchr(path, '='))
                path = strchr(path, '=') + 1;
            if (!cli_claim(cli, shown, path, ret_exit))
                return false;
        }
    }
    return true;
}

static bool check_operands(Cli *cli, int *ret_exit)
{
    const CommandInfo *info = &command_info[cli->command];
    if (cli->operand.num < info->min) {
        *ret_exit = cli_usage(cli, "sinter %s needs %s", info->name, info->operands);
        return false;
    }
    if (info->max >= 0 && cli->operand.num > info->max) {
        *ret_exit =
            cli_usage(cli, "sinter %s takes %s, and '%s' is one too many", info->name,
                      info->max ? info->operands : "no operand", cli->operand.elem[info->max]);
        return false;
    }
    return true;
}

/* `sinter help [COMMAND]`, `sinter --help`, `sinter --version`, no words at all. */
static bool parse_command(Cli *cli, int argc, char **argv, int *ret_exit)
{
    Nearest nearest;
    cli->command = NUM_COMMANDS;
    if (argc < 2) {
        *ret_exit = cli_usage(cli, "no command was given");
        return false;
    }
    const char *word = argv[1];
    if (!strcmp(word, "--version")) {
        puts("sinter " SINTER_VERSION);
        *ret_exit = EXIT_OK;
        return false;
    }
    bool help = !strcmp(word, "help") || !strcmp(word, "--help") || !strcmp(word, "-h");
    if (help && (argc < 3 || !strcmp(argv[2], "help"))) {
        print_help();
        *ret_exit = EXIT_OK;
        return false;
    }
    if (help)
        word = argv[2];
    cli->command = find_command(word, &nearest);
    if (cli->command == NUM_COMMANDS) {
        *ret_exit = unknown(cli, "command", word, &nearest, "");
        return false;
    }
    if (help) {
        *ret_exit = print_command_help(cli->command);
        return false;
    }
    return true;
}

bool cli_parse(Cli *cli, Arena *arena, int argc, char **argv, int *ret_exit)
{
    *cli = (Cli){.arena = arena, .argv = argv};
    parse_early(cli, argc, argv);
    if (!parse_command(cli, argc, argv, ret_exit))
        return false;
    bool options_end = false;
    for (int i = 2; i < argc; i++) {
        if (options_end || argv[i][0] != '-' || !argv[i][1])
            ARRAY_PUSH(arena, &cli->operand, (const char *)argv[i]);
        else if (!strcmp(argv[i], "--"))
            options_end = true;
        else if (!parse_option(cli, argc, argv, &i, ret_exit))
            return false;
        if (cli_has(cli, OPTION_HELP)) {
            *ret_exit = print_command_help(cli->command);
            return false;
        }
        if (cli_has(cli, OPTION_VERSION)) {
            puts("sinter " SINTER_VERSION);
            *ret_exit = EXIT_OK;
            return false;
        }
    }
    return check_operands(cli, ret_exit) && claim_outputs(cli, ret_exit);
}
