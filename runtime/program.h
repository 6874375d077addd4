/* The command line of a compiled model: the program stub's main is program_main(NULL, ..), and
 * `sinter run`, `sinter bench` and `sinter eval` pass the same words on for a file that they have
 * just compiled, so that both read alike. Kept out of libsinter, which neither prints nor exits.
 *
 *   --input NAME=FILE    .npy or .safetensors; NAME= may be left out when there is one input
 *   --output NAME=FILE   likewise
 *   --labels FILE        integers, .npy: prints how often the largest value of the only output's
 *                        row is the label ("accuracy 0.9722 (350 of 360)")
 *   --device cpu         --threads N
 *   --bench              median, p95, GB/s and GFLOP/s instead of outputs; --bucket NAME=N
 *   --trace FILE         Chrome trace of the latest run
 *   --help  --version */
#ifndef SINTER_PROGRAM_H
#define SINTER_PROGRAM_H

/* path: the compiled file, NULL for the running program itself. argv[0] is the name to use in
 * messages. Returns the exit code: 0 ok, 1 errors in the input, 2 usage, 4 no such device. */
int program_main(const char *path, int argc, char **argv);

#endif
