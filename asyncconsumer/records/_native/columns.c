/* Records straight to the buffers of Arrow arrays: one pass, no object per record.

   Copied, a column is Arrow's `binary`: offsets and data. Not copied, it is `binary_view`: sixteen
   bytes a value that hold it, if it is short, or point into the fetch buffer (number 0) or into
   one of the inflated bodies, which are all returned so that the arrays keep them alive. */

#include "memory.h"
#include "native.h"

enum Wanted { OFFSET = 1, TIMESTAMP = 2, TIMESTAMP_TYPE = 4, KEY = 8, VALUE = 16, HEADERS = 32, AS_VIEWS = 64 };
enum {
    INLINE = 12,
    LARGEST_AT_ONCE = 16 << 20, /* bytes of a column that are copied before the event loop runs */
};

static inline int append_int(Buffer *buffer, int32_t value) { return buffer_append(buffer, &value, 4); }

/* --- one column of bytes ----------------------------------------------------------------------------- */

typedef struct {
    Buffer places; /* offsets, or views */
    Buffer data;
    Buffer valid;  /* one bit a value, made when the first null comes */
    int64_t count, nulls;
} Column;

static int mark(Column *column, bool is_valid)
{
    int64_t whole = column->count / 8;
    while (column->valid.used <= whole) { /* what came before the first null was valid */
        char *at = buffer_extend(&column->valid, 1);
        if (at == NULL)
            return -1;
        *at = column->nulls == 0 ? (char)0xFF : 0;
    }
    char bit = (char)(1 << (column->count % 8)), *byte = column->valid.start + whole;
    *byte = (char)(is_valid ? *byte | bit : *byte & ~bit);
    return 0;
}

static inline int note(Column *column, bool is_valid)
{
    if ((column->nulls > 0 || !is_valid) && mark(column, is_valid) < 0)
        return -1;
    column->count++;
    column->nulls += !is_valid;
    return 0;
}

static inline int add_copied(Column *column, const uint8_t *at, int32_t length)
{
    if (at != NULL && length > 0 && buffer_append(&column->data, at, length) < 0)
        return -1;
    return append_int(&column->places, (int32_t)column->data.used) < 0 ? -1 : note(column, at != NULL);
}

static inline int add_view(Column *column, const uint8_t *at, int32_t length, const uint8_t *origin,
                           int32_t number)
{
    char *view = buffer_extend(&column->places, 16);
    if (view == NULL)
        return -1;
    memset(view, 0, 16);
    if (at != NULL) {
        memcpy(view, &length, 4);
        if (length <= INLINE)
            memcpy(view + 4, at, (size_t)length);
        else {
            int32_t offset = (int32_t)(at - origin);
            memcpy(view + 4, at, 4);
            memcpy(view + 8, &number, 4);
            memcpy(view + 12, &offset, 4);
        }
    }
    return note(column, at != NULL);
}

static PyObject *finished_column(Column *column)
{
    if (column->nulls > 0 && column->count % 8) /* no bits of what is not there */
        column->valid.start[column->valid.used - 1] &= (char)((1 << (column->count % 8)) - 1);
    PyObject *valid = column->nulls ? buffer_finish(&column->valid) : Py_NewRef(Py_None);
    PyObject *places = buffer_finish(&column->places), *data = buffer_finish(&column->data), *parts = NULL;
    if (valid != NULL && places != NULL && data != NULL)
        parts = Py_BuildValue("(OLOO)", valid, (long long)column->nulls, places, data);
    Py_XDECREF(valid);
    Py_XDECREF(places);
    Py_XDECREF(data);
    return parts;
}

static void drop_column(Column *column)
{
    buffer_free(&column->places);
    buffer_free(&column->data);
    buffer_free(&column->valid);
}

/* --- the table ---------------------------------------------------------------------------------------- */

typedef struct {
    int wanted;
    bool copy;
    int64_t scale, max_bytes, rows;
    Buffer offsets, timestamps, types, lists;
    Column key, value, header_key, header_value;
} Table;

static int64_t scaled(int64_t timestamp, int64_t scale)
{
    int64_t product;
    if (__builtin_mul_overflow(timestamp, scale, &product))
        return timestamp < 0 ? INT64_MIN : INT64_MAX;
    return product;
}

static int add_headers(Table *table, const ParsedRecord *parsed)
{
    Reader r = {parsed->headers, parsed->headers_end}; /* checked when it was sighted */
    for (int32_t i = 0; i < parsed->header_count; i++) {
        int64_t length = 0;
        read_varint(&r, &length);
        if (add_copied(&table->header_key, r.position, (int32_t)length) < 0)
            return -1;
        r.position += length;
        read_varint(&r, &length);
        if (add_copied(&table->header_value, length < 0 ? NULL : r.position, (int32_t)length) < 0)
            return -1;
        if (length > 0)
            r.position += length;
    }
    return append_int(&table->lists, (int32_t)table->header_key.count);
}

/* Whether the row would carry a column of copied bytes beyond what its offsets can say. */
static bool is_too_much(const Table *table, const ParsedRecord *parsed)
{
    int64_t headers = parsed->header_count ? parsed->headers_end - parsed->headers : 0;
    if (table->header_key.data.used + headers > table->max_bytes
        || table->header_value.data.used + headers > table->max_bytes)
        return true;
    return table->copy && (table->key.data.used + parsed->key_length > table->max_bytes
                           || table->value.data.used + parsed->value_length > table->max_bytes);
}

static inline int add_bytes(Table *table, Column *column, const uint8_t *at, int32_t length,
                            const uint8_t *origin, int32_t number)
{
    if (table->copy)
        return add_copied(column, at, length);
    return add_view(column, at, length, origin, number);
}

static inline int add_row(Table *table, const ParsedRecord *parsed, const uint8_t *origin, int32_t number)
{
    int wanted = table->wanted;
    int64_t offset = parsed->offset, timestamp = scaled(parsed->timestamp, table->scale);
    if (wanted & OFFSET && buffer_append(&table->offsets, &offset, 8) < 0)
        return -1;
    if (wanted & TIMESTAMP && buffer_append(&table->timestamps, &timestamp, 8) < 0)
        return -1;
    if (wanted & TIMESTAMP_TYPE && append_int(&table->types, parsed->timestamp_type) < 0)
        return -1;
    if (wanted & KEY && add_bytes(table, &table->key, parsed->key, parsed->key_length, origin, number) < 0)
        return -1;
    if (wanted & VALUE
        && add_bytes(table, &table->value, parsed->value, parsed->value_length, origin, number) < 0)
        return -1;
    if (wanted & HEADERS && add_headers(table, parsed) < 0)
        return -1;
    table->rows++;
    return 0;
}

/* --- filling the table ------------------------------------------------------------------------------------ */

static int begin_lending(Records *self)
{
    self->shared_bodies = PyList_New(0);
    if (self->shared_bodies == NULL)
        return -1;
    if (self->remaining == 0 || (self->rest_evicted && self->next_record == self->body_end))
        return 0;
    if (self->shared_body != NULL) /* lent before, and not read to its end yet */
        return PyList_Append(self->shared_bodies, self->shared_body);
    return self->is_decompressed ? body_share(self) : 0;
}

/* Fills the table; -1 on an error that came before the first row, which is raised again if kept. */
static int fill(Records *self, Table *table, int64_t max_rows)
{
    const uint8_t *fetched = self->view.buf;
    ParsedRecord parsed;
    while (table->rows < max_rows) {
        int found = walk_next(self, &parsed);
        if (found < 0 && (table->rows == 0 || self->error == NULL))
            return -1;
        if (found < 0)
            PyErr_Clear();
        if (found <= 0)
            return 0;
        /* inflated bodies: each may be as large as is allowed, and a fetch holds thousands */
        bool one_too_many = self->decompressed_bytes > self->max_decompressed_bytes;
        if (table->rows > 0 && (one_too_many || is_too_much(table, &parsed))) {
            walk_unread(self, &parsed);
            return 0;
        }
        bool inflated = !table->copy && self->shared_body != NULL;
        const uint8_t *origin = inflated ? (uint8_t *)((Slab *)self->shared_body)->memory.start : fetched;
        int32_t number = inflated ? (int32_t)PyList_GET_SIZE(self->shared_bodies) : 0;
        if (add_row(table, &parsed, origin, number) < 0)
            return -1;
    }
    return 0;
}

static PyObject *finished_table(Table *table, PyObject *buffers)
{
    PyObject *parts[] = {
        buffer_finish(&table->offsets), buffer_finish(&table->timestamps), buffer_finish(&table->types),
        finished_column(&table->key), finished_column(&table->value), buffer_finish(&table->lists),
        finished_column(&table->header_key), finished_column(&table->header_value),
    };
    bool whole = true;
    for (int i = 0; i < 8; i++)
        whole = whole && parts[i] != NULL;
    PyObject *answer = NULL;
    if (whole)
        answer = Py_BuildValue("(LOOOOOOOOO)", (long long)table->rows, parts[0], parts[1], parts[2], parts[3],
                               parts[4], parts[5], parts[6], parts[7], buffers);
    for (int i = 0; i < 8; i++)
        Py_XDECREF(parts[i]);
    return answer;
}

static void drop_table(Table *table)
{
    buffer_free(&table->offsets);
    buffer_free(&table->timestamps);
    buffer_free(&table->types);
    buffer_free(&table->lists);
    drop_column(&table->key);
    drop_column(&table->value);
    drop_column(&table->header_key);
    drop_column(&table->header_value);
}

/* Per KiB of record set, as the last table was: the next one is probably like it. */
static int64_t rows_per_kib = 16, key_per_kib = 128, value_per_kib = 1024;

/* Memory is taken once where that can be foreseen: growing costs a copy and more page faults. */
static int foresee(Table *table, int64_t kib, int64_t max_rows)
{
    int64_t rows = kib * rows_per_kib < max_rows ? kib * rows_per_kib : max_rows;
    struct { Buffer *buffer; int64_t size; int flag; } sizes[] = {
        {&table->offsets, 8 * rows, OFFSET},
        {&table->timestamps, 8 * rows, TIMESTAMP},
        {&table->types, 4 * rows, TIMESTAMP_TYPE},
        {&table->key.places, (table->copy ? 4 : 16) * rows, KEY},
        {&table->value.places, (table->copy ? 4 : 16) * rows, VALUE},
        {&table->key.data, table->copy ? kib * key_per_kib : 0, KEY},
        {&table->value.data, table->copy ? kib * value_per_kib : 0, VALUE},
        {&table->lists, 4 * rows, HEADERS},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (table->wanted & sizes[i].flag && buffer_grow(sizes[i].buffer, sizes[i].size + 64) < 0)
            return -1;
    return 0;
}

/* A little more than it was, but not what only a bomb would need. */
static int64_t rate(int64_t used, int64_t kib, int64_t most)
{
    int64_t per_kib = used / kib + used / kib / 16 + 1;
    return per_kib < most ? per_kib : most;
}

static void learn(const Table *table, int64_t kib)
{
    rows_per_kib = rate(table->rows, kib, 256);
    if (table->copy) {
        key_per_kib = rate(table->key.data.used, kib, 4096);
        value_per_kib = rate(table->value.data.used, kib, 16384);
    }
}

/* Arrow's offsets begin with a zero; views have no such thing. */
static int begin_table(Table *table)
{
    if (table->copy && (append_int(&table->key.places, 0) < 0 || append_int(&table->value.places, 0) < 0))
        return -1;
    return append_int(&table->lists, 0) < 0 || append_int(&table->header_key.places, 0) < 0
                || append_int(&table->header_value.places, 0) < 0
             ? -1
             : 0;
}

static PyObject *take(Records *self, Table *table, int64_t max_rows)
{
    PyObject *answer = NULL, *source = self->view.obj ? Py_NewRef(self->view.obj) : NULL;
    self->decompressed_bytes = 0;
    int64_t kib = ((self->end - self->next_entry) + (self->body_end - self->next_record)) / 1024 + 1;
    if (foresee(table, kib, max_rows) == 0 && begin_table(table) == 0 && (table->copy || begin_lending(self) == 0)
        && fill(self, table, max_rows) == 0) {
        if (self->view.obj == NULL) /* it was read to its end */
            learn(table, kib);
        PyObject *buffers = self->shared_bodies ? Py_NewRef(self->shared_bodies) : PyList_New(0);
        if (table->rows == 0)
            answer = Py_NewRef(Py_None);
        else if (buffers != NULL && (self->shared_bodies == NULL || PyList_Insert(buffers, 0, source) == 0))
            answer = finished_table(table, buffers);
        Py_XDECREF(buffers);
    }
    Py_CLEAR(self->shared_bodies);
    Py_XDECREF(source);
    drop_table(table);
    return answer;
}

PyObject *records_take_columns(Records *self, PyObject *args)
{
    Table table = {0};
    long long max_rows, max_bytes, scale;
    if (!PyArg_ParseTuple(args, "iLLL:take_columns", &table.wanted, &max_rows, &max_bytes, &scale))
        return NULL;
    table.copy = !(table.wanted & AS_VIEWS);
    table.scale = scale;
    table.max_bytes = self->cooperative && max_bytes > LARGEST_AT_ONCE ? LARGEST_AT_ONCE : max_bytes;
    if (!table.copy && (self->view.len > INT32_MAX || self->max_decompressed_bytes > INT32_MAX)) {
        PyErr_SetString(PyExc_ValueError, "columns that are not copied need buffers below 2 GiB");
        return NULL;
    }
    if (records_pause_while_preparing(self))
        Py_RETURN_NONE;
    if (records_enter(self) < 0)
        return NULL;
    PyObject *taken = take(self, &table, max_rows);
    records_leave(self);
    return taken;
}
