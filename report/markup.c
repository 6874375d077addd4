/* Text for HTML and SVG; see markup.h. */
#include "report/markup.h"
#include "base/utf8.h"
#include <string.h>

static const char *entity(uint32_t c)
{
    switch (c) {
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '&': return "&amp;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

/* XML has no place for them, not even as entities; or they change what is read around them. */
static bool is_hidden(uint32_t c)
{
    return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f || c == 0xfffe || c == 0xffff ||
           utf8_is_deceptive(c);
}

void markup_put(Sb *sb, const char *text)
{
    size_t len = strlen(text);
    for (size_t i = 0; i < len;) {
        uint32_t c;
        int size = utf8_next(text + i, len - i, &c);
        if (size == 0)
            sb_printf(sb, "\\x%02x", (unsigned)(uint8_t)text[i]);
        else if (entity(c))
            sb_put(sb, entity(c));
        else if (is_hidden(c))
            sb_printf(sb, "\\u{%x}", (unsigned)c);
        else
            sb_putn(sb, text + i, (size_t)size);
        i += size ? (size_t)size : 1;
    }
}
