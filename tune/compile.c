/* The sources of `sinter tune` on their way to machine code, on threads of their own while others
 * are measured. They come about in the order in which they are wanted. */
#include "tune/tune.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NICENESS 10 /* a process that measures goes first */

typedef struct Result {
    bool known;
    void *image; /* malloc'ed; NULL: see why */
    size_t size;
    char *why;
} Result;

struct TuneCompiler {
    Arena *arena; /* the thread's */
    Diag diag;
    CudaTarget target;
    CudaCompileOptions options;
    Result *result; /* [target.num_sources] */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ended, stop;
};

static bool note(void *user, int image, const void *data, size_t size, const char *problem)
{
    TuneCompiler *c = user;
    Result r = {.known = true, .size = size, .image = data ? malloc(size + 1) : NULL};
    if (r.image) { /* a zero byte ends what drivers read */
        memcpy(r.image, data, size);
        ((char *)r.image)[size] = 0;
    } else {
        r.why = strdup(problem ? problem : "memory is exhausted");
    }
    pthread_mutex_lock(&c->lock);
    c->result[image] = r;
    bool more = !c->stop;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return more;
}

static void *compile(void *user)
{
    TuneCompiler *c = user;
    (void)!nice(NICENESS); /* of this thread and those that it starts */
    cuda_compile(&c->diag, c->arena, &c->target, &c->options);
    pthread_mutex_lock(&c->lock);
    c->ended = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

TuneCompiler *tune_compile(int num, const CudaSource *source, const CudaCompileOptions *options)
{
    TuneCompiler *c = calloc(1, sizeof *c);
    bool ok = c && (c->arena = arena_create()) != NULL;
    if (ok) {
        diag_init(&c->diag, c->arena);
        c->target = (CudaTarget){.num_sources = num, .source = source};
        c->options = *options;
        c->options.ready = note;
        c->options.user = c;
        c->options.problem = ARENA_NEW_ARRAY(c->arena, const char *, (size_t)num + 1);
        c->result = ARENA_NEW_ARRAY(c->arena, Result, (size_t)num + 1);
        pthread_mutex_init(&c->lock, NULL);
        pthread_cond_init(&c->changed, NULL);
        ok = pthread_create(&c->thread, NULL, compile, c) == 0;
    }
    if (ok)
        return c;
    if (c && c->arena)
        arena_destroy(c->arena);
    free(c);
    return NULL;
}

bool tune_compiled(TuneCompiler *c, int source, const void **ret_image, size_t *ret_size,
                   const char **ret_why)
{
    pthread_mutex_lock(&c->lock);
    while (!c->result[source].known && !c->ended)
        pthread_cond_wait(&c->changed, &c->lock);
    Result r = c->result[source];
    pthread_mutex_unlock(&c->lock);
    *ret_image = r.image;
    *ret_size = r.size;
    *ret_why = r.why ? r.why : "";
    return r.known;
}

bool tune_compile_end(TuneCompiler *c, Diag *diag)
{
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    for (const DiagMessage *m = c->diag.first; m; m = m->next) {
        (m->severity == SEVERITY_ERROR ? diag_error : diag_warning)(diag, m->span, m->id, "%s",
                                                                    m->text);
        for (const DiagMessage *child = m->child; child; child = child->next)
            diag_help(diag, "%s", child->text);
    }
    bool ok = !c->diag.num_errors;
    for (int i = 0; i < c->target.num_sources; i++) {
        free(c->result[i].image);
        free(c->result[i].why);
    }
    arena_destroy(c->arena);
    free(c);
    return ok;
}
