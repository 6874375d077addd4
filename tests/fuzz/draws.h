/* What a target would draw at random and get by chance, made the same in every process, so that a
 * run with the same -seed executes the same inputs: the folder of its files and the seed of hashes.
 */
#ifndef FUZZ_DRAWS_H
#define FUZZ_DRAWS_H

/* An empty folder of this process, in TMPDIR, which is best kept in memory; its name is the same
 * each time. Whoever puts a file there takes it away again, at exit by atexit() at the latest. */
const char *fuzz_folder(void);

#endif
