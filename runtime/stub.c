/* The program that every compiled file starts with: it opens the file that it is itself. */
#include "runtime/program.h"

#include <stddef.h>

int main(int argc, char **argv)
{
    return program_main(NULL, argc, argv);
}
