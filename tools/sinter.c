/* The `sinter` command: parses its words and hands them to one of cmd_*.c. */
#include "base/team.h"
#include "choose/clock.h"
#include "codegen/cuda/target.h"
#include "io/io.h"
#include "tools/words/cli.h"
#include <errno.h>
#include <string.h>

/* Results that did not reach standard output are an error: a full disk must not look like success.
 */
static int close_output(bool json, int exit_code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return exit_code;
    const char *form = json ? "{\"severity\":\"error\",\"code\":\"E0502\",\"message\":\"%s: %s\"}\n"
                            : "sinter: error: %s: %s\n";
    fprintf(stderr, form, "cannot write standard output", strerror(errno));
    return exit_code == EXIT_OK ? EXIT_INPUT : exit_code;
}

static void warn_of_threads(const Cli *cli)
{
    const char *text = team_ignored();
    Sb sb;
    if (!text)
        return;
    sb_init(&sb, cli->arena);
    sb_put(&sb, "SINTER_THREADS is no number of threads, so it is not heeded: ");
    sb_put_safe(&sb, text, strlen(text));
    if (!cli->json) {
        fprintf(stderr, "sinter: warning: %s\n", sb.text);
        return;
    }
    Sb json;
    sb_init(&json, cli->arena);
    sb_put_json_string(&json, sb.text, sb.len);
    fprintf(stderr, "{\"severity\":\"warning\",\"message\":%s}\n", json.text);
}

int main(int argc, char **argv)
{
    Cli cli;
    int exit_code;
    ChildOrder order;
    nvrtc_serve(argv);
    if (clock_order(&order))
        clock_serve(&order);
    files_guard("sinter");
    Arena *arena = arena_new();
    if (cli_parse(&cli, arena, argc, argv, &exit_code)) {
        warn_of_threads(&cli);
        exit_code = command_info[cli.command].run(&cli);
    }
    bool json = cli.json;
    arena_destroy(arena);
    return close_output(json, exit_code);
}
