/* The `sinter` command: parses its words and hands them to one of cmd_*.c. */
#include "io/io.h"
#include "tools/cli.h"
#include <errno.h>
#include <string.h>

/* Results that did not reach standard output are an error: a full disk must not look like success.
 */
static int close_output(int exit_code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return exit_code;
    fprintf(stderr, "sinter: error: cannot write standard output: %s\n", strerror(errno));
    return exit_code == EXIT_OK ? EXIT_INPUT : exit_code;
}

int main(int argc, char **argv)
{
    Cli cli;
    int exit_code;
    files_guard("sinter");
    Arena *arena = arena_new();
    if (cli_parse(&cli, arena, argc, argv, &exit_code))
        exit_code = command_info[cli.command].run(&cli);
    arena_destroy(arena);
    return close_output(exit_code);
}
