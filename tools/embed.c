/* embed <in> <out.c> <symbol>: a file as a C array, for the build. Writes
 *     const unsigned char <symbol>[];  const size_t <symbol>_size;
 * aligned to 64 bytes. The bytes stand in a string literal because compilers read that an order of
 * magnitude faster than a list of numbers. Depends on the C library alone. */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define BYTES_PER_LINE 32

static bool is_identifier(const char *text)
{
    if (!isalpha((unsigned char)*text) && *text != '_')
        return false;
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && *text != '_')
            return false;
    return true;
}

/* Letters and single spaces as they are; all else in octal, which also keeps trigraphs and hex
 * escapes that swallow the next digit away. Digits in octal too: they would extend an escape. */
static void write_byte(FILE *out, int byte)
{
    if (isalpha(byte) || byte == ' ')
        putc(byte, out);
    else
        fprintf(out, "\\%03o", (unsigned)byte);
}

static bool write_array(FILE *in, FILE *out, const char *symbol, long size)
{
    fprintf(out,
            "#include <stddef.h>\n"
            "#pragma GCC diagnostic ignored \"-Woverlength-strings\"\n"
            "extern const unsigned char %s[];\n"
            "extern const size_t %s_size;\n"
            "const size_t %s_size = %ld;\n"
            "_Alignas(64) const unsigned char %s[%ld] =\n",
            symbol, symbol, symbol, size, symbol, size + 1);
    long num = 0;
    for (int byte; (byte = getc(in)) != EOF; num++) {
        if (num % BYTES_PER_LINE == 0)
            fputs(num ? "\"\n    \"" : "    \"", out);
        write_byte(out, byte);
    }
    fputs(num ? "\";\n" : "    \"\";\n", out);
    return num == size && !ferror(in) && !ferror(out);
}

int main(int argc, char **argv)
{
    if (argc != 4 || !is_identifier(argv[3])) {
        fputs("usage: embed <in> <out.c> <symbol>\n", stderr);
        return 2;
    }
    FILE *in = fopen(argv[1], "rb");
    if (!in || fseek(in, 0, SEEK_END)) {
        perror(argv[1]);
        return 1;
    }
    long size = ftell(in);
    rewind(in);
    FILE *out = fopen(argv[2], "wb");
    if (!out) {
        perror(argv[2]);
        return 1;
    }
    bool ok = size >= 0 && write_array(in, out, argv[3], size);
    if (fclose(out) || !ok) {
        fprintf(stderr, "embed: cannot copy '%s' to '%s'\n", argv[1], argv[2]);
        remove(argv[2]);
        return 1;
    }
    fclose(in);
    return 0;
}
