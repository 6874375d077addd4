/* choose: settles `auto` and writes the rules that it comes to. */
#include "driver/work.h"
#include <string.h>

int cmd_choose(Cli *cli)
{
    Work w;
    const char *out = cli_get(cli, OPTION_OUTPUT_FILE, NULL);
    if (!work_init(&w, cli))
        return EXIT_INPUT;
    if (work_lower(&w, cli->operand.elem[0]) && !w.choice) {
        diag_error(&w.diag, (Span){0}, E_AUTO, "the text has no 'auto' that could be settled");
        diag_help(&w.diag, "docs/auto.md shows one");
    } else if (w.choice && w.choice->rules && !w.diag.num_errors) {
        work_put(&w, out, w.choice->standing, strlen(w.choice->standing));
    }
    return work_end(&w, EXIT_OK);
}
