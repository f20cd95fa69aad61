#include "memory.h"

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#define MAPS_LARGE_BLOCKS
#endif

enum {
    LEAST_ROOM = 1024,
    LEAST_KEPT = 16 << 10,  /* smaller ones malloc keeps warm by itself */
    MOST_KEPT = 8 << 20,    /* bytes in all */
    MOST_BLOCKS = 16,
    ROUNDED_TO = 64 << 10,  /* rooms: frames of about the same size fit each other's */
};

typedef struct {
    char *start;
    Py_ssize_t room;
} Block;

static Block kept[MOST_BLOCKS];
static int kept_count;
static Py_ssize_t kept_bytes;

#ifdef MAPS_LARGE_BLOCKS

/* Blocks of more than LEAST_MAPPED bytes are mapped, so that they return to the system when they are freed.
   malloc keeps them in the arena of the thread that decompressed. */
enum { LEAST_MAPPED = 4 << 20 };

static char *allocate(Py_ssize_t room)
{
    if (room <= LEAST_MAPPED)
        return PyMem_RawMalloc((size_t)room);
    void *start = mmap(NULL, (size_t)room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

static void release(char *start, Py_ssize_t room)
{
    if (room <= LEAST_MAPPED)
        PyMem_RawFree(start);
    else
        munmap(start, (size_t)room);
}

#else

static char *allocate(Py_ssize_t room) { return PyMem_RawMalloc((size_t)room); }

static void release(char *start, Py_ssize_t room) { PyMem_RawFree(start); }

#endif

static void give_back(char *start, Py_ssize_t room)
{
    if (room < LEAST_KEPT || kept_count == MOST_BLOCKS || kept_bytes + room > MOST_KEPT) {
        release(start, room);
        return;
    }
    kept[kept_count++] = (Block){start, room};
    kept_bytes += room;
}

/* The smallest kept block that is large enough, and not so large that it would be a waste. */
static int take_kept(Buffer *buffer, Py_ssize_t room)
{
    int best = -1;
    for (int i = 0; i < kept_count; i++)
        if (kept[i].room >= room && kept[i].room / 2 <= room && (best < 0 || kept[i].room < kept[best].room))
            best = i;
    if (best < 0)
        return -1;
    buffer->start = kept[best].start;
    buffer->capacity = kept[best].room;
    kept_bytes -= buffer->capacity;
    kept[best] = kept[--kept_count];
    return 0;
}

int buffer_grow(Buffer *buffer, Py_ssize_t extra)
{
    Buffer larger = {NULL, buffer->used, 0};
    Py_ssize_t room = buffer->used + extra;
    if (room < 2 * buffer->capacity)
        room = 2 * buffer->capacity;
    if (room < LEAST_ROOM)
        room = LEAST_ROOM;
    if (take_kept(&larger, room) < 0) {
        larger.start = allocate(room);
        larger.capacity = room;
        if (larger.start == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    if (buffer->start != NULL) {
        memcpy(larger.start, buffer->start, (size_t)buffer->used);
        give_back(buffer->start, buffer->capacity);
    }
    *buffer = larger;
    return 0;
}

void buffer_free(Buffer *buffer)
{
    if (buffer->start != NULL)
        give_back(buffer->start, buffer->capacity);
    *buffer = (Buffer){NULL, 0, 0};
}

/* --- the object ------------------------------------------------------------------------------------ */

static PyTypeObject Slab_Type;

PyObject *buffer_finish(Buffer *buffer)
{
    Slab *slab = PyObject_New(Slab, &Slab_Type);
    if (slab == NULL)
        return NULL;
    if (buffer->capacity > LEAST_KEPT && buffer->used < buffer->capacity / 4) { /* who keeps it keeps all of it */
        Py_ssize_t room = buffer->used > 0 ? buffer->used : 1;
        char *less = allocate(room);
        if (less != NULL) {
            memcpy(less, buffer->start, (size_t)buffer->used);
            release(buffer->start, buffer->capacity);
            buffer->start = less;
            buffer->capacity = room;
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
    Py_ssize_t wanted = PyLong_AsSsize_t(size), rounded = wanted;
    if (wanted == -1 && PyErr_Occurred())
        return NULL;
    if (wanted < 0) {
        PyErr_SetString(PyExc_ValueError, "`size` must not be negative");
        return NULL;
    }
    if (wanted >= LEAST_KEPT && wanted <= PY_SSIZE_T_MAX - ROUNDED_TO)
        rounded = (wanted + ROUNDED_TO - 1) / ROUNDED_TO * ROUNDED_TO;
    if (buffer_grow(&memory, rounded) < 0)
        return NULL;
    Slab *slab = PyObject_New(Slab, &Slab_Type);
    if (slab == NULL) {
        buffer_free(&memory);
        return NULL;
    }
    memory.used = wanted;
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
    static char nothing;
    char *start = self->memory.start ? self->memory.start : &nothing;
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
