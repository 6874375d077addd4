/* Text that becomes part of HTML or SVG. */
#ifndef SINTER_MARKUP_H
#define SINTER_MARKUP_H

#include "base/base.h"

/* Appends text so that it stands for itself, between elements and inside quoted attributes alike:
 * the characters of markup as entities; control characters other than newline and tab, bytes that
 * are not UTF-8 and characters that reorder or hide text as visible escapes ("\u{202e}"). */
void markup_put(Sb *sb, const char *text);

#endif
