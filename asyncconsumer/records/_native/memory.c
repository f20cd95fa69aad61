#include "memory.h"

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#define MAPS_LARGE_BLOCKS
#endif

enum {
    MIN_CAPACITY = 1024,
    MIN_KEPT = 16 << 10,      /* malloc itself reuses smaller blocks */
    MAX_KEPT_BYTES = 8 << 20, /* total size of the kept blocks */
    MAX_KEPT_BLOCKS = 16,
    ROUNDING = 64 << 10,      /* granularity of block sizes, so that frames of similar sizes can use the same blocks */
};

typedef struct {
    char *start;
    Py_ssize_t capacity;
} Block;

static Block kept_blocks[MAX_KEPT_BLOCKS];
static int kept_count;
static Py_ssize_t kept_bytes;

#ifdef MAPS_LARGE_BLOCKS

/* Blocks of more than MIN_MAPPED bytes are mapped, so that the system gets them back when they are freed. malloc
   would keep them in the arena of the decompressing thread. */
enum { MIN_MAPPED = 4 << 20 };

static char *allocate(Py_ssize_t capacity)
{
    if (capacity <= MIN_MAPPED)
        return PyMem_RawMalloc((size_t)capacity);
    void *start = mmap(NULL, (size_t)capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

static void release(char *start, Py_ssize_t capacity)
{
    if (capacity <= MIN_MAPPED)
        PyMem_RawFree(start);
    else
        munmap(start, (size_t)capacity);
}

#else

static char *allocate(Py_ssize_t capacity) { return PyMem_RawMalloc((size_t)capacity); }

static void release(char *start, Py_ssize_t capacity) { PyMem_RawFree(start); }

#endif

static void keep_or_release(char *start, Py_ssize_t capacity)
{
    if (capacity < MIN_KEPT || kept_count == MAX_KEPT_BLOCKS || kept_bytes + capacity > MAX_KEPT_BYTES) {
        release(start, capacity);
        return;
    }
    kept_blocks[kept_count++] = (Block){start, capacity};
    kept_bytes += capacity;
}

/* Takes the smallest kept block that is large enough, if it is at most twice as large as necessary. */
static int take_kept(Buffer *buffer, Py_ssize_t capacity)
{
    int best = -1;
    for (int i = 0; i < kept_count; i++)
        if (kept_blocks[i].capacity >= capacity && kept_blocks[i].capacity / 2 <= capacity
            && (best < 0 || kept_blocks[i].capacity < kept_blocks[best].capacity))
            best = i;
    if (best < 0)
        return -1;
    buffer->start = kept_blocks[best].start;
    buffer->capacity = kept_blocks[best].capacity;
    kept_bytes -= buffer->capacity;
    kept_blocks[best] = kept_blocks[--kept_count];
    return 0;
}

int buffer_grow(Buffer *buffer, Py_ssize_t extra)
{
    Buffer larger = {NULL, buffer->used, 0};
    Py_ssize_t capacity = buffer->used + extra;
    if (capacity < 2 * buffer->capacity)
        capacity = 2 * buffer->capacity;
    if (capacity < MIN_CAPACITY)
        capacity = MIN_CAPACITY;
    if (take_kept(&larger, capacity) < 0) {
        larger.start = allocate(capacity);
        larger.capacity = capacity;
        if (larger.start == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    if (buffer->start != NULL) {
        memcpy(larger.start, buffer->start, (size_t)buffer->used);
        keep_or_release(buffer->start, buffer->capacity);
    }
    *buffer = larger;
    return 0;
}

void buffer_free(Buffer *buffer)
{
    if (buffer->start != NULL)
        keep_or_release(buffer->start, buffer->capacity);
    *buffer = (Buffer){NULL, 0, 0};
}

/* --- the object ------------------------------------------------------------------------------------ */

static PyTypeObject Slab_Type;

PyObject *buffer_finish(Buffer *buffer)
{
    Slab *slab = PyObject_New(Slab, &Slab_Type);
    if (slab == NULL)
        return NULL;
    /* The owner of a small result would keep the whole block. */
    if (buffer->capacity > MIN_KEPT && buffer->used < buffer->capacity / 4) {
        Py_ssize_t capacity = buffer->used > 0 ? buffer->used : 1;
        char *smaller = allocate(capacity);
        if (smaller != NULL) {
            memcpy(smaller, buffer->start, (size_t)buffer->used);
            release(buffer->start, buffer->capacity);
            buffer->start = smaller;
            buffer->capacity = capacity;
        }
    }
    slab->memory = *buffer;
    slab->writable = false;
    *buffer = (Buffer){NULL, 0, 0};
    return (PyObject *)slab;
}

PyObject *room_for(PyObject *module, PyObject *size)
{
    Buffer memory = {NULL, 0, 0};
    Py_ssize_t length = PyLong_AsSsize_t(size), rounded = length;
    if (length == -1 && PyErr_Occurred())
        return NULL;
    if (length < 0) {
        PyErr_SetString(PyExc_ValueError, "`size` must not be negative");
        return NULL;
    }
    if (length >= MIN_KEPT && length <= PY_SSIZE_T_MAX - ROUNDING)
        rounded = (length + ROUNDING - 1) / ROUNDING * ROUNDING;
    if (buffer_grow(&memory, rounded) < 0)
        return NULL;
    Slab *slab = PyObject_New(Slab, &Slab_Type);
    if (slab == NULL) {
        buffer_free(&memory);
        return NULL;
    }
    memory.used = length;
    slab->memory = memory;
    slab->writable = true;
    return (PyObject *)slab;
}

static void slab_dealloc(Slab *self)
{
    buffer_free(&self->memory);
    PyObject_Free(self);
}

static int slab_get_buffer(Slab *self, Py_buffer *view, int flags)
{
    static char empty;
    char *start = self->memory.start ? self->memory.start : &empty;
    return PyBuffer_FillInfo(view, (PyObject *)self, start, self->memory.used, !self->writable, flags);
}

static PyBufferProcs slab_as_buffer = {.bf_getbuffer = (getbufferproc)slab_get_buffer};

static PyTypeObject Slab_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncconsumer.records._records._Slab",
    .tp_basicsize = sizeof(Slab),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)slab_dealloc,
    .tp_as_buffer = &slab_as_buffer,
};

int memory_prepare(void) { return PyType_Ready(&Slab_Type); }
