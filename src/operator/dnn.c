/* SPDX-License-Identifier: MIT
 *
 * The only file that knows oneDNN. Versions 2 and 3 differ in how descriptors are made;
 * both are wrapped by the few `describe` functions at the top, and the rest is common.
 */
#include "operator/dnn.h"

#include <oneapi/dnnl/dnnl.h>

#include "base/memory.h"
#include "base/status.h"

struct mb_dnn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    size_t scratch_size, room_size; /* bytes, floats */
    void *scratch;
    float *room;
};

/* A primitive with its three operands and its scratch memory. */
struct mb_pass {
    mb_dnn *dnn;
    mb_pass_kind kind;
    dnnl_primitive_t primitive;
    dnnl_memory_t src, weights, dst, scratch;
    dnnl_primitive_t reorder; /* plain weights <-> the layout the primitive wants */
    dnnl_memory_t plain;      /* [out][in][kernel][kernel]                        */
    float *packed;            /* the weights in that layout                       */
};

static mb_status check(dnnl_status_t status, const char *what) {
    if (status == dnnl_success) return MB_OK;
    if (status == dnnl_out_of_memory) return mb_fail(MB_ENOMEM, "oneDNN: out of memory: %s", what);
    return mb_fail(MB_EINTERNAL, "oneDNN: status %d: %s", (int)status, what);
}

/* ------------------------------------------------- the two versions of oneDNN -- */

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t tensor; /* a handle that must be destroyed */

static dnnl_status_t tensor_create(tensor *t, const dnnl_dim_t *dims, dnnl_format_tag_t tag) {
    return dnnl_memory_desc_create_with_tag(t, 4, dims, dnnl_f32, tag);
}
static void tensor_destroy(tensor *t) {
    if (*t) dnnl_memory_desc_destroy(*t);
    *t = NULL;
}
static size_t tensor_bytes(const_dnnl_memory_desc_t t) {
    return dnnl_memory_desc_get_size(t);
}
#define TENSOR_REF(t) (t)
#define TENSOR_EMPTY NULL
typedef const_dnnl_memory_desc_t tensor_ref;
#else
typedef dnnl_memory_desc_t tensor; /* a plain struct */

static dnnl_status_t tensor_create(tensor *t, const dnnl_dim_t *dims, dnnl_format_tag_t tag) {
    return dnnl_memory_desc_init_by_tag(t, 4, dims, dnnl_f32, tag);
}
static void tensor_destroy(tensor *t) {
    (void)t;
}
static size_t tensor_bytes(const dnnl_memory_desc_t *t) {
    return dnnl_memory_desc_get_size(t);
}
#define TENSOR_REF(t) (&(t))
#define TENSOR_EMPTY                                                                               \
    { 0 }
typedef const dnnl_memory_desc_t *tensor_ref;
#endif

/* Geometry in oneDNN's words. */
typedef struct geometry {
    dnnl_dims_t strides, dilates, before, after;
} geometry;

/* hint: the forward descriptor, for the two backward passes. */
static dnnl_status_t describe(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, mb_pass_kind kind,
                              tensor_ref src, tensor_ref weights, tensor_ref dst, const geometry *g,
                              const_dnnl_primitive_attr_t attr, const_dnnl_primitive_desc_t hint) {
    dnnl_alg_kind_t algorithm = dnnl_convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
    switch (kind) {
    case MB_PASS_FORWARD:
        return dnnl_convolution_forward_primitive_desc_create(
            pd, engine, dnnl_forward_training, algorithm, src, weights, NULL, dst, g->strides,
            g->dilates, g->before, g->after, attr);
    case MB_PASS_BACKWARD:
        return dnnl_convolution_backward_data_primitive_desc_create(
            pd, engine, algorithm, src, weights, dst, g->strides, g->dilates, g->before, g->after,
            hint, attr);
    default:
        return dnnl_convolution_backward_weights_primitive_desc_create(
            pd, engine, algorithm, src, weights, NULL, dst, g->strides, g->dilates, g->before,
            g->after, hint, attr);
    }
#else
    dnnl_convolution_desc_t desc;
    dnnl_status_t status;
    switch (kind) {
    case MB_PASS_FORWARD:
        status =
            dnnl_convolution_forward_desc_init(&desc, dnnl_forward_training, algorithm, src,
                                               weights, NULL, dst, g->strides, g->before, g->after);
        break;
    case MB_PASS_BACKWARD:
        status = dnnl_convolution_backward_data_desc_init(&desc, algorithm, src, weights, dst,
                                                          g->strides, g->before, g->after);
        break;
    default:
        status = dnnl_convolution_backward_weights_desc_init(&desc, algorithm, src, weights, NULL,
                                                             dst, g->strides, g->before, g->after);
        break;
    }
    if (status != dnnl_success) return status;
    return dnnl_primitive_desc_create(pd, &desc, attr, engine, hint);
#endif
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops) {
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_f32);
#else
    return dnnl_post_ops_append_sum(ops, 1.0f);
#endif
}

/* -------------------------------------------------------------------- context -- */

mb_status mb_dnn_create(mb_dnn **out) {
    *out = NULL;
    mb_dnn *dnn;
    MB_TRY(mb_alloc(&dnn, 1, sizeof *dnn));
    mb_status status;
    MB_GOTO(fail, status, check(dnnl_engine_create(&dnn->engine, dnnl_cpu, 0), "engine"));
    MB_GOTO(
        fail, status,
        check(dnnl_stream_create(&dnn->stream, dnn->engine, dnnl_stream_default_flags), "stream"));
    *out = dnn;
    return MB_OK;
fail:
    mb_dnn_destroy(dnn);
    return status;
}

void mb_dnn_destroy(mb_dnn *dnn) {
    if (dnn == NULL) return;
    if (dnn->stream) dnnl_stream_destroy(dnn->stream);
    if (dnn->engine) dnnl_engine_destroy(dnn->engine);
    mb_free(dnn->scratch);
    mb_free(dnn->room);
    mb_free(dnn);
}

void mb_dnn_reserve(mb_dnn *dnn, size_t floats) {
    if (floats > dnn->room_size) dnn->room_size = floats;
}

float *mb_dnn_room(mb_dnn *dnn) {
    return dnn->room;
}

mb_status mb_dnn_commit(mb_dnn *dnn) {
    MB_TRY(mb_alloc(&dnn->scratch, dnn->scratch_size, 1));
    return mb_alloc(&dnn->room, dnn->room_size, sizeof(float));
}

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

const char *mb_build_info(void) {
    return "compiler " __VERSION__ ", oneDNN " TEXT(DNNL_VERSION_MAJOR) "." TEXT(
        DNNL_VERSION_MINOR) "." TEXT(DNNL_VERSION_PATCH);
}

/* --------------------------------------------------------------------- passes -- */

void mb_pass_destroy(mb_pass *p) {
    if (p == NULL) return;
    if (p->primitive) dnnl_primitive_destroy(p->primitive);
    if (p->reorder) dnnl_primitive_destroy(p->reorder);
    dnnl_memory_t memories[] = {p->src, p->weights, p->dst, p->scratch, p->plain};
    for (size_t i = 0; i < sizeof memories / sizeof *memories; ++i) {
        if (memories[i]) dnnl_memory_destroy(memories[i]);
    }
    mb_free(p->packed);
    mb_free(p);
}

static mb_status memory_create(dnnl_memory_t *memory, tensor_ref desc, dnnl_engine_t engine) {
    return check(dnnl_memory_create(memory, desc, engine, DNNL_MEMORY_NONE), "memory");
}

/* A reorder between the plain weights and the packed ones; direction by `kind`. */
static mb_status reorder_create(mb_pass *p, tensor_ref plain, tensor_ref packed,
                                dnnl_engine_t engine) {
    dnnl_primitive_desc_t pd;
    bool out = p->kind == MB_PASS_GRADIENT;
    tensor_ref from = out ? packed : plain, to = out ? plain : packed;
    MB_TRY(check(dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, NULL),
                 "weights reorder"));
    mb_status status = check(dnnl_primitive_create(&p->reorder, pd), "weights reorder");
    dnnl_primitive_desc_destroy(pd);
    return status;
}

/* The attributes every pass has: scratch memory from us, and maybe a sum. */
static mb_status attributes_create(dnnl_primitive_attr_t *attr, bool adds) {
    dnnl_post_ops_t ops = NULL;
    *attr = NULL;
    dnnl_status_t s = dnnl_primitive_attr_create(attr);
    if (s == dnnl_success)
        s = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (s == dnnl_success && adds) {
        s = dnnl_post_ops_create(&ops);
        if (s == dnnl_success) s = append_sum(ops);
        if (s == dnnl_success) s = dnnl_primitive_attr_set_post_ops(*attr, ops);
        if (ops) dnnl_post_ops_destroy(ops);
    }
    return check(s, "attributes");
}

/* Padding after the end, from out = (in + before + after - kernel) / stride + 1. It may be
 * negative, down to 1 - stride, where the stride leaves the last cells unseen.             */
static dnnl_dim_t padding_after(uint32_t in, uint32_t out, uint32_t before, uint32_t kernel,
                                uint32_t stride) {
    return ((dnnl_dim_t)out - 1) * stride + kernel - in - before;
}

static geometry geometry_of(const mb_conv_shape *s) {
    return (geometry){
        .strides = {s->stride, s->stride},
        .before = {s->before_y, s->before_x},
        .after = {padding_after(s->in_height, s->out_height, s->before_y, s->kernel, s->stride),
                  padding_after(s->in_width, s->out_width, s->before_x, s->kernel, s->stride)}};
}

static mb_status pass_init(mb_pass *p, const mb_conv_shape *s, bool adds) {
    mb_dnn *dnn = p->dnn;
    mb_pass_kind kind = p->kind;
    dnnl_dims_t src_dims = {s->batch, s->in_channels, s->in_height, s->in_width};
    dnnl_dims_t dst_dims = {s->batch, s->out_channels, s->out_height, s->out_width};
    dnnl_dims_t weight_dims = {s->out_channels, s->in_channels, s->kernel, s->kernel};
    geometry g = geometry_of(s);
    tensor src = TENSOR_EMPTY, dst = TENSOR_EMPTY, any = TENSOR_EMPTY, plain = TENSOR_EMPTY;
    dnnl_primitive_attr_t attr = NULL, plain_attr = NULL;
    dnnl_primitive_desc_t pd = NULL, hint = NULL;
    mb_status status;
    MB_GOTO(done, status, check(tensor_create(&src, src_dims, dnnl_nhwc), "tier shape"));
    MB_GOTO(done, status, check(tensor_create(&dst, dst_dims, dnnl_nhwc), "row shape"));
    MB_GOTO(done, status, check(tensor_create(&plain, weight_dims, dnnl_oihw), "weights"));
    MB_GOTO(done, status, check(tensor_create(&any, weight_dims, dnnl_format_tag_any), "weights"));
    MB_GOTO(done, status, attributes_create(&attr, adds && kind == MB_PASS_FORWARD));
    MB_GOTO(done, status, attributes_create(&plain_attr, false));
    if (kind != MB_PASS_FORWARD) {
        MB_GOTO(done, status,
                check(describe(&hint, dnn->engine, MB_PASS_FORWARD, TENSOR_REF(src),
                               TENSOR_REF(any), TENSOR_REF(dst), &g, plain_attr, NULL),
                      "convolution"));
    }
    MB_GOTO(done, status,
            check(describe(&pd, dnn->engine, kind, TENSOR_REF(src), TENSOR_REF(any),
                           TENSOR_REF(dst), &g, attr, hint),
                  "convolution"));
    MB_GOTO(done, status, check(dnnl_primitive_create(&p->primitive, pd), "convolution"));

    tensor_ref packed = dnnl_primitive_desc_query_md(
        pd, kind == MB_PASS_GRADIENT ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    tensor_ref scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    size_t scratch_bytes = tensor_bytes(scratch);
    if (scratch_bytes > dnn->scratch_size) dnn->scratch_size = scratch_bytes;
    MB_GOTO(done, status, memory_create(&p->src, TENSOR_REF(src), dnn->engine));
    MB_GOTO(done, status, memory_create(&p->dst, TENSOR_REF(dst), dnn->engine));
    MB_GOTO(done, status, memory_create(&p->weights, packed, dnn->engine));
    MB_GOTO(done, status, memory_create(&p->plain, TENSOR_REF(plain), dnn->engine));
    MB_GOTO(done, status, memory_create(&p->scratch, scratch, dnn->engine));
    MB_GOTO(done, status, reorder_create(p, TENSOR_REF(plain), packed, dnn->engine));
    MB_GOTO(done, status, mb_alloc(&p->packed, tensor_bytes(packed), 1));
    status = check(dnnl_memory_set_data_handle(p->weights, p->packed), "weights");
done:
    if (pd) dnnl_primitive_desc_destroy(pd);
    if (hint) dnnl_primitive_desc_destroy(hint);
    if (attr) dnnl_primitive_attr_destroy(attr);
    if (plain_attr) dnnl_primitive_attr_destroy(plain_attr);
    tensor_destroy(&src);
    tensor_destroy(&dst);
    tensor_destroy(&any);
    tensor_destroy(&plain);
    return status;
}

mb_status mb_pass_create(mb_pass **out, mb_dnn *dnn, const mb_conv_shape *shape, mb_pass_kind kind,
                         bool adds) {
    *out = NULL;
    mb_pass *p;
    MB_TRY(mb_alloc(&p, 1, sizeof *p));
    p->dnn = dnn;
    p->kind = kind;
    mb_status status = pass_init(p, shape, adds);
    if (status != MB_OK) {
        mb_pass_destroy(p);
        return status;
    }
    *out = p;
    return MB_OK;
}

/* -------------------------------------------------------------------- running -- */

/* The library takes no const pointers, and writes only to the operand of its role. */
static void *writable(const float *data) {
    return (void *)(uintptr_t)data;
}

static mb_status reorder(mb_pass *p, const float *plain) {
    MB_TRY(check(dnnl_memory_set_data_handle(p->plain, writable(plain)), "weights"));
    bool out = p->kind == MB_PASS_GRADIENT;
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, out ? p->weights : p->plain},
                              {DNNL_ARG_TO, out ? p->plain : p->weights}};
    return check(dnnl_primitive_execute(p->reorder, p->dnn->stream, 2, args), "weights reorder");
}

static mb_status execute(mb_pass *p, const float *src, const float *dst) {
    static const int roles[][3] = {
        [MB_PASS_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
        [MB_PASS_BACKWARD] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
        [MB_PASS_GRADIENT] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST},
    };
    dnnl_status_t s = dnnl_memory_set_data_handle(p->src, writable(src));
    if (s == dnnl_success) s = dnnl_memory_set_data_handle(p->dst, writable(dst));
    if (s == dnnl_success) s = dnnl_memory_set_data_handle(p->scratch, p->dnn->scratch);
    dnnl_exec_arg_t args[] = {{roles[p->kind][0], p->src},
                              {roles[p->kind][1], p->weights},
                              {roles[p->kind][2], p->dst},
                              {DNNL_ARG_SCRATCHPAD, p->scratch}};
    if (s == dnnl_success) s = dnnl_primitive_execute(p->primitive, p->dnn->stream, 4, args);
    return check(s, "convolution");
}

mb_status mb_pass_set_weights(mb_pass *p, const float *weights) {
    return reorder(p, weights);
}

mb_status mb_pass_run(mb_pass *p, const float *from, float *to) {
    return p->kind == MB_PASS_FORWARD ? execute(p, from, to) : execute(p, to, from);
}

mb_status mb_pass_gradient(mb_pass *p, const float *tier, const float *rows, float *gradient) {
    MB_TRY(execute(p, tier, rows));
    return reorder(p, gradient);
}

mb_status mb_gemm(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, float alpha,
                  const float *a, size_t lda, const float *b, size_t ldb, float beta, float *c,
                  size_t ldc) {
    return check(dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', (dnnl_dim_t)m,
                            (dnnl_dim_t)n, (dnnl_dim_t)k, alpha, a, (dnnl_dim_t)lda, b,
                            (dnnl_dim_t)ldb, beta, c, (dnnl_dim_t)ldc),
                 "matrix product");
}
