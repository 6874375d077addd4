/* Fuzz target: models of ONNX. Whatever is accepted must be walked to its end, become a text or
 * refusals, and its weights must be made without reading outside of the file. */
#include "onnx/onnx.h"
#include "quant/quant.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fill_items(const OnnxText *text)
{
    for (int i = 0; i < text->items.num; i++) {
        const OnnxItem *item = text->items.elem[i];
        uint64_t num = (uint64_t)format_info[item->fmt].bits / 8;
        for (int k = 0; k < item->rank; k++)
            num *= (uint64_t)item->dim[k];
        uint8_t *made = malloc((size_t)num + 1);
        if (made)
            onnx_item_fill(item, made);
        free(made);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena *arena = arena_new();
    IoError err;
    Diag diag;
    OnnxText text;

    diag_init(&diag, arena);
    OnnxModel *m = onnx_parse(arena, "fuzz.onnx", data, size, &err);
    if (m && onnx_import(arena, &diag, m, &text))
        fill_items(&text);
    else if (m && !diag.num_errors)
        BUG("a model is refused without a word");
    onnx_close(m);
    arena_destroy(arena);
    return 0;
}
