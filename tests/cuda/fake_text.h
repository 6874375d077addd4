/* What the fake driver was asked to do, a line each; its caller holds its lock. */
#ifndef SINTER_FAKE_TEXT_H
#define SINTER_FAKE_TEXT_H

void log_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_clear(void);
const char *log_lines(void); /* valid until the next line */

#endif
