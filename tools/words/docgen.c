/* docgen bash|zsh|fish|errors, docgen man <prose>: completions, the page of error codes and the
 * manual page of `sinter`, from the same tables as its parser. A build tool: it depends on the
 * tables alone. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
#define COMMAND(ID, name, operands, min, max, run, describe) COMMAND_##ID,
#include "tools/words/commands.def"
#undef COMMAND
    NUM_COMMANDS,
#define COMMAND(ID, name, operands, min, max, run, describe) CMD_##ID = 1 << COMMAND_##ID,
#include "tools/words/commands.def"
#undef COMMAND
    CMD_COMPILES = CMD_CHECK | CMD_COMPILE | CMD_RUN | CMD_EVAL | CMD_BENCH | CMD_EXPLAIN |
                   CMD_SHOW | CMD_CALIBRATE | CMD_CHOOSE | CMD_REPORT,
    CMD_ALL = (1 << NUM_COMMANDS) - 1
};

static const struct {
    const char *name, *operands, *describe;
} command[] = {
#define COMMAND(ID, name, operands, min, max, run, describe) {name, operands, describe},
#include "tools/words/commands.def"
#undef COMMAND
};

static const struct {
    char letter;
    const char *name, *arg;
    unsigned commands;
    const char *describe;
} option[] = {
#define OPTION(ID, letter, name, arg, commands, describe) {letter, name, arg, commands, describe},
#include "tools/words/options.def"
#undef OPTION
};
#define NUM_OPTIONS (int)(sizeof option / sizeof option[0])

enum {
#define OPTION(ID, letter, name, arg, commands, describe) OPTION_##ID,
#include "tools/words/options.def"
#undef OPTION
};
enum {
#define OPTION_GROUP(ID, title) GROUP_##ID,
#define OPTION_IN(ID, group)
#include "tools/words/groups.def"
#undef OPTION_GROUP
#undef OPTION_IN
    NUM_GROUPS
};
static const char *const group_title[] = {
#define OPTION_GROUP(ID, title) title,
#define OPTION_IN(ID, group)
#include "tools/words/groups.def"
#undef OPTION_GROUP
#undef OPTION_IN
};
static const int option_group[sizeof option / sizeof option[0]] = {
#define OPTION_GROUP(ID, title)
#define OPTION_IN(ID, group) [OPTION_##ID] = GROUP_##group,
#include "tools/words/groups.def"
#undef OPTION_GROUP
#undef OPTION_IN
};

static bool is_choice(const char *arg)
{
    return strchr(arg, '|') || strchr(arg, ',');
}

/* The words of a choice, each followed by `after`. */
static void put_words(const char *arg, const char *after)
{
    for (; *arg; arg++)
        if (*arg == '|' || *arg == ',')
            fputs(after, stdout);
        else
            putchar(*arg);
}

/* Text inside single quotes of a shell. */
static void put_quoted(const char *text, const char *quote)
{
    for (; *text; text++)
        if (*text == '\'')
            fputs(quote, stdout);
        else
            putchar(*text);
}

static void put_bash(void)
{
    puts("# completion of sinter for bash\n_sinter()\n{\n"
         "    local word=$2 before=$3 options=\n"
         "    COMPREPLY=()\n"
         "    [ \"$word\" = = ] && word=\n"
         "    [ \"$before\" = = ] && before=${COMP_WORDS[COMP_CWORD - 2]}\n"
         "    case $before in");
    for (int i = 0; i < NUM_OPTIONS; i++)
        if (is_choice(option[i].arg) && option[i].name[0]) {
            printf("    --%s) mapfile -t COMPREPLY < <(compgen -W '", option[i].name);
            put_words(option[i].arg, " ");
            puts("' -- \"$word\"); return ;;");
        }
    printf("    esac\n    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
           "        mapfile -t COMPREPLY < <(compgen -W '");
    for (int c = 0; c < NUM_COMMANDS; c++)
        printf("%s ", command[c].name);
    puts("help --help --version' -- \"$word\")\n        return\n    fi\n"
         "    case ${COMP_WORDS[1]} in");
    for (int c = 0; c < NUM_COMMANDS; c++) {
        printf("    %s) options='", command[c].name);
        for (int i = 0; i < NUM_OPTIONS; i++) {
            if (!(option[i].commands & 1u << c))
                continue;
            if (option[i].letter)
                printf("-%c ", option[i].letter);
            if (option[i].name[0])
                printf("--%s ", option[i].name);
        }
        puts("' ;;");
    }
    printf("    help) options='");
    for (int c = 0; c < NUM_COMMANDS; c++)
        printf("%s ", command[c].name);
    puts("'\n        mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\")\n"
         "        return ;;\n    esac\n"
         "    case $word in\n"
         "    -*) mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\") ;;\n"
         "    *) mapfile -t COMPREPLY < <(compgen -f -- \"$word\") ;;\n"
         "    esac\n}\ncomplete -o filenames -F _sinter sinter");
}

static void put_zsh(void)
{
    puts("#compdef sinter\n# completion of sinter for zsh\n_sinter() {\n"
         "    local -a commands\n    commands=(");
    for (int c = 0; c < NUM_COMMANDS; c++) {
        printf("        '%s:", command[c].name);
        put_quoted(command[c].describe, "'\\''");
        puts("'");
    }
    puts("        'help:list the options of a command'\n    )\n"
         "    if (( CURRENT == 2 )); then\n"
         "        _describe command commands\n        return\n    fi\n"
         "    local name=$words[2]\n    shift words\n    (( CURRENT-- ))\n"
         "    case $name in");
    for (int c = 0; c < NUM_COMMANDS; c++) {
        printf("    %s) _arguments", command[c].name);
        for (int i = 0; i < NUM_OPTIONS; i++) {
            if (!(option[i].commands & 1u << c))
                continue;
            printf(" \\\n        ");
            if (option[i].name[0])
                printf("'--%s%s[", option[i].name, option[i].arg[0] ? "=" : "");
            else
                printf("'-%c%s[", option[i].letter, option[i].arg[0] ? "+" : "");
            for (const char *at = option[i].describe; *at; at++)
                if (*at == '\'')
                    fputs("'\\''", stdout);
                else if (*at == '[' || *at == ']')
                    printf("\\%c", *at);
                else
                    putchar(*at);
            putchar(']');
            if (is_choice(option[i].arg)) {
                printf(":word:(");
                put_words(option[i].arg, " ");
                putchar(')');
            } else if (option[i].arg[0]) {
                printf(":value:_files");
            }
            putchar('\'');
        }
        puts(" \\\n        '*:file:_files' ;;");
    }
    puts("    help) _describe command commands ;;\n    esac\n}\n_sinter \"$@\"");
}

static void put_fish(void)
{
    puts("# completion of sinter for fish\n"
         "complete -c sinter -n __fish_use_subcommand -f -a help -d 'the options of a command'");
    for (int c = 0; c < NUM_COMMANDS; c++) {
        printf("complete -c sinter -n __fish_use_subcommand -f -a %s -d '", command[c].name);
        put_quoted(command[c].describe, "\\'");
        puts("'");
        for (int i = 0; i < NUM_OPTIONS; i++) {
            if (!(option[i].commands & 1u << c))
                continue;
            printf("complete -c sinter -n '__fish_seen_subcommand_from %s'", command[c].name);
            if (option[i].letter)
                printf(" -s %c", option[i].letter);
            if (option[i].name[0])
                printf(" -l %s", option[i].name);
            if (is_choice(option[i].arg)) {
                printf(" -x -a '");
                put_words(option[i].arg, " ");
                putchar('\'');
            } else if (option[i].arg[0]) {
                printf(" -r");
            }
            printf(" -d '");
            put_quoted(option[i].describe, "\\'");
            puts("'");
        }
    }
}

static void put_man_commands(void)
{
    for (int c = 0; c < NUM_COMMANDS; c++) {
        printf(".It Nm sinter Cm %s", command[c].name);
        if (command[c].operands[0])
            printf(" Ar %s", command[c].operands);
        printf("\n%c%s.\n", command[c].describe[0] & ~0x20, command[c].describe + 1);
    }
}

static void put_man_option(int i)
{
    printf(".It");
    if (option[i].letter)
        printf(" Fl %c", option[i].letter);
    if (option[i].letter && option[i].name[0])
        printf(" ,");
    if (option[i].name[0])
        printf(" Fl Fl %s", option[i].name);
    if (option[i].arg[0])
        printf(" Ar %s", option[i].arg);
    char first = option[i].describe[0];
    printf("\n%c%s.\n", first >= 'a' && first <= 'z' ? first & ~0x20 : first,
           option[i].describe + 1);
    if (option[i].commands == CMD_ALL)
        return;
    printf("For");
    const char *separator = "";
    for (int c = 0; c < NUM_COMMANDS; c++)
        if (option[i].commands & 1u << c) {
            printf("%s\n.Cm %s", separator, command[c].name);
            separator = " ,";
        }
    puts(" .");
}

/* A list for each group. */
static void put_man_options(void)
{
    for (int g = 0; g < NUM_GROUPS; g++) {
        printf(".Ss %s\n.Bl -tag -width indent\n", group_title[g]);
        for (int i = 0; i < NUM_OPTIONS; i++)
            if (option_group[i] == g)
                put_man_option(i);
        puts(".El");
    }
}

/* The prose with its lines ".\" COMMANDS" and ".\" OPTIONS" replaced by lists. */
static int put_man(const char *path)
{
    char line[1024];
    FILE *f = fopen(path, "r");
    if (!f) {
        perror(path);
        return 1;
    }
    while (fgets(line, sizeof line, f)) {
        if (!strcmp(line, ".\\\" COMMANDS\n"))
            put_man_commands();
        else if (!strcmp(line, ".\\\" OPTIONS\n"))
            put_man_options();
        else
            fputs(line, stdout);
    }
    fclose(f);
    return 0;
}

static const struct {
    const char *code, *title, *explanation;
} error[] = {
#define ERROR_ROW(ID, code, title, explanation) {code, title, explanation},
#include "base/errors.def"
#undef ERROR_ROW
};
#define NUM_ERRORS (int)(sizeof error / sizeof error[0])

/* The code that follows another, -1: none. */
static int next_error(const char *last)
{
    int next = -1;
    for (int i = 0; i < NUM_ERRORS; i++)
        if (strcmp(error[i].code, last) > 0 &&
            (next < 0 || strcmp(error[i].code, error[next].code) < 0))
            next = i;
    return next;
}

/* A page of Markdown, by code. */
static void put_errors(void)
{
    puts("# Error codes\n\n`sinter explain E0201` prints one of these. Codes keep their meaning: "
         "none "
         "is used again.");
    for (int i = next_error("E0000"); i >= 0; i = next_error(error[i].code))
        printf("\n## %s: %s\n\n%s\n", error[i].code, error[i].title, error[i].explanation);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "bash"))
        put_bash();
    else if (argc == 2 && !strcmp(argv[1], "zsh"))
        put_zsh();
    else if (argc == 2 && !strcmp(argv[1], "fish"))
        put_fish();
    else if (argc == 2 && !strcmp(argv[1], "errors"))
        put_errors();
    else if (argc == 3 && !strcmp(argv[1], "man"))
        return put_man(argv[2]);
    else {
        fputs("usage: docgen bash|zsh|fish|errors, docgen man <prose>\n", stderr);
        return 2;
    }
    return ferror(stdout) ? 1 : 0;
}
