/* tools: the `sinter` command. commands.def and options.def are the one source of its words;
 * cli.c parses and explains them, cmd_*.c do the work, words/docgen.c writes completions and the
 * man page.
 *
 * Results go to standard output, diagnostics to standard error. Exit codes: 0 ok, 1 errors in the
 * input, 2 usage, 3 accuracy or golden mismatch, 4 no such device, 5 slower than unquantised
 * under `slower error` or --slower=error, 70 a bug of ours. */
#ifndef SINTER_CLI_H
#define SINTER_CLI_H

#include "base/base.h"

enum {
    EXIT_OK = 0,
    EXIT_INPUT = 1,
    EXIT_USAGE = 2,
    EXIT_MISMATCH = 3,
    EXIT_DEVICE = 4,
    EXIT_SLOWER = 5
};

typedef enum CommandId {
#define COMMAND(ID, name, operands, min, max, run, describe) COMMAND_##ID,
#include "tools/words/commands.def"
#undef COMMAND
    NUM_COMMANDS
} CommandId;

#define COMMAND(ID, name, operands, min, max, run, describe) CMD_##ID = 1 << COMMAND_##ID,
enum {
#include "tools/words/commands.def"
    CMD_COMPILES = CMD_CHECK | CMD_COMPILE | CMD_RUN | CMD_EVAL | CMD_BENCH | CMD_EXPLAIN |
                   CMD_SHOW | CMD_CALIBRATE | CMD_CHOOSE | CMD_REPORT | CMD_QUANTISE,
    CMD_ALL = (1 << NUM_COMMANDS) - 1
};
#undef COMMAND

typedef enum OptionId {
#define OPTION(ID, letter, name, arg, commands, describe) OPTION_##ID,
#include "tools/words/options.def"
#undef OPTION
    NUM_OPTIONS
} OptionId;

typedef enum OptionGroup {
#define OPTION_GROUP(ID, title) OPTION_GROUP_##ID,
#define OPTION_IN(ID, group)
#include "tools/words/groups.def"
#undef OPTION_GROUP
#undef OPTION_IN
    NUM_OPTION_GROUPS
} OptionGroup;

typedef struct Cli Cli;
typedef struct CommandInfo {
    const char *name, *operands, *describe;
    int min, max;
    int (*run)(Cli *cli);
} CommandInfo;
typedef struct OptionInfo {
    char letter; /* 0: none */
    const char *name, *arg, *describe;
    unsigned commands;
} OptionInfo;

/* cli.c --------------------------------------------------------------------------------------- */

/* One command line, parsed and checked against the tables. */
struct Cli {
    Arena *arena;
    char **argv; /* all words, ended by NULL */
    CommandId command;
    ARRAY(const char *) operand;
    ARRAY(const char *) value[NUM_OPTIONS]; /* in order; flags hold "" */
    bool color, json;
    struct TextStreams *streams; /* texts that several steps of a command read */
};

extern const CommandInfo command_info[NUM_COMMANDS];
extern const OptionInfo option_info[NUM_OPTIONS];

/* False: *ret_exit is the exit code, everything has been said. */
bool cli_parse(Cli *cli, Arena *arena, int argc, char **argv, int *ret_exit);
static inline bool cli_has(const Cli *cli, OptionId id)
{
    return cli->value[id].num > 0;
}
/* The last value given, or `otherwise`. */
static inline const char *cli_get(const Cli *cli, OptionId id, const char *otherwise)
{
    return cli->value[id].num ? cli->value[id].elem[cli->value[id].num - 1] : otherwise;
}
/* "sinter: <text>" and a pointer to the help, to standard error; returns EXIT_USAGE. */
int cli_usage(const Cli *cli, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Names a file that is to be written, so that it is not read, too. False after a usage error. */
bool cli_claim(const Cli *cli, const char *option, const char *path, int *ret_exit);
void cli_print_option(FILE *out, const OptionInfo *option, int column);

#define COMMAND(ID, name, operands, min, max, run, describe) int cmd_##run(Cli *cli);
#include "tools/words/commands.def"
#undef COMMAND

#endif
