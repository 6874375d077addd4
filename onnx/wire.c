/* onnx/wire: the wire format of protocol buffers. A message is a list of fields, each a number and
 * a kind in one varint, then a varint, 4 or 8 bytes, or a length and so many bytes. Lengths are
 * held to what is left of the message around them, so nothing is read outside of it; messages are
 * walked by the functions that know them, so nesting is bounded by the code. */
#include "base/utf8.h"
#include "onnx/onnx.h"

#include <string.h>

bool wire_fail(Wire *w, const char *fmt, ...)
{
    char text[300];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (!w->failed)
        io_fail(w->err, E_ONNX, "%s: byte %llu, in a %s: %s", w->file,
                (unsigned long long)(w->at - w->base), w->what, text);
    w->failed = true;
    w->at = w->end;
    return false;
}

bool wire_varint(Wire *w, uint64_t *ret)
{
    uint64_t value = 0;

    for (unsigned shift = 0; w->at < w->end; shift += 7) {
        uint8_t byte = *w->at++;
        if (shift == 63 && byte > 1)
            return wire_fail(w, "a number of more than 64 bits");
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *ret = value;
            return true;
        }
    }
    return wire_fail(w, "it ends inside of a number");
}

static bool take(Wire *w, uint64_t size, const uint8_t **ret)
{
    if (size > (uint64_t)(w->end - w->at))
        return wire_fail(w, "a field of %llu bytes, but %llu are left", (unsigned long long)size,
                         (unsigned long long)(w->end - w->at));
    *ret = w->at;
    w->at += size;
    return true;
}

static bool take_fixed(Wire *w, uint64_t size, uint64_t *ret)
{
    const uint8_t *at = NULL;

    if (!take(w, size, &at))
        return false;
    *ret = 0;
    for (uint64_t i = size; i-- > 0;)
        *ret = *ret << 8 | at[i];
    return true;
}

bool wire_next(Wire *w, WireField *ret)
{
    uint64_t key = 0;

    if (w->failed || w->at >= w->end || !wire_varint(w, &key))
        return false;
    if (key >> 3 == 0 || key >> 3 > 0x1fffffff)
        return wire_fail(w, "a field of number %llu", (unsigned long long)(key >> 3));
    *ret = (WireField){.number = (uint32_t)(key >> 3)};
    switch (key & 7) {
    case WIRE_VARINT: return wire_varint(w, &ret->value);
    case WIRE_FIXED64: ret->kind = WIRE_FIXED64; return take_fixed(w, 8, &ret->value);
    case WIRE_FIXED32: ret->kind = WIRE_FIXED32; return take_fixed(w, 4, &ret->value);
    case WIRE_BYTES:
        ret->kind = WIRE_BYTES;
        return wire_varint(w, &ret->bytes.size) && take(w, ret->bytes.size, &ret->bytes.data);
    default: return wire_fail(w, "a field of kind %d, which nothing writes", (int)(key & 7));
    }
}

Wire wire_inside(const Wire *w, const WireField *field, const char *what)
{
    Wire ret = *w;

    ret.what = what;
    if (field->kind != WIRE_BYTES) {
        ret.at = ret.end = w->at;
        wire_fail(&ret, "a number in its place");
        return ret;
    }
    ret.at = field->bytes.data;
    ret.end = field->bytes.data + field->bytes.size;
    return ret;
}

const char *wire_text(Wire *w, Arena *arena, const WireField *field)
{
    const char *text = (const char *)field->bytes.data;
    size_t len = (size_t)field->bytes.size;

    if (field->kind != WIRE_BYTES || len >= LIMIT_TOKEN_BYTES || (len && memchr(text, 0, len)) ||
        !utf8_valid(text, len)) {
        wire_fail(w, "a name that is no UTF-8, holds NUL or is longer than %u bytes",
                  LIMIT_TOKEN_BYTES - 1);
        return "";
    }
    return len ? arena_strndup(arena, text, len) : "";
}
