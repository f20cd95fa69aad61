/* Records as the buffers of Arrow arrays, in one pass and without an object for each record.

   A copied column is Arrow's `binary`: offsets and data. A column without copies is `binary_view`, with 16 bytes for
   each value. A view contains a short value. For a long value, it refers to the fetch buffer (number 0) or to a
   decompressed body. The table includes these buffers, so that the arrays keep them alive. */

#include "memory.h"
#include "native.h"

enum Flag { OFFSET = 1, TIMESTAMP = 2, TIMESTAMP_TYPE = 4, KEY = 8, VALUE = 16, HEADERS = 32, AS_VIEWS = 64 };
enum {
    MAX_INLINE = 12,
    MAX_COPIED_BYTES = 16 << 20, /* bytes of a column that are copied before the event loop runs */
};

static inline int append_int(Buffer *buffer, int32_t value) { return buffer_append(buffer, &value, 4); }

/* --- one column of bytes ----------------------------------------------------------------------------- */

typedef struct {
    Buffer slots;    /* offsets, or views */
    Buffer data;
    Buffer validity; /* one bit for each value; empty until the first null */
    int64_t count, nulls;
} Column;

static int set_validity(Column *column, bool is_valid)
{
    int64_t index = column->count / 8;
    while (column->validity.used <= index) { /* all values before the first null are valid */
        char *added = buffer_extend(&column->validity, 1);
        if (added == NULL)
            return -1;
        *added = column->nulls == 0 ? (char)0xFF : 0;
    }
    char bit = (char)(1 << (column->count % 8)), *byte = column->validity.start + index;
    *byte = (char)(is_valid ? *byte | bit : *byte & ~bit);
    return 0;
}

static inline int count_value(Column *column, bool is_valid)
{
    if ((column->nulls > 0 || !is_valid) && set_validity(column, is_valid) < 0)
        return -1;
    column->count++;
    column->nulls += !is_valid;
    return 0;
}

static inline int append_copy(Column *column, const uint8_t *data, int32_t length)
{
    if (data != NULL && length > 0 && buffer_append(&column->data, data, length) < 0)
        return -1;
    return append_int(&column->slots, (int32_t)column->data.used) < 0 ? -1 : count_value(column, data != NULL);
}

static inline int append_view(Column *column, const uint8_t *data, int32_t length, const uint8_t *buffer_start,
                              int32_t buffer_index)
{
    char *view = buffer_extend(&column->slots, 16);
    if (view == NULL)
        return -1;
    memset(view, 0, 16);
    if (data != NULL) {
        memcpy(view, &length, 4);
        if (length <= MAX_INLINE)
            memcpy(view + 4, data, (size_t)length);
        else {
            int32_t offset = (int32_t)(data - buffer_start);
            memcpy(view + 4, data, 4);
            memcpy(view + 8, &buffer_index, 4);
            memcpy(view + 12, &offset, 4);
        }
    }
    return count_value(column, data != NULL);
}

static PyObject *column_finish(Column *column)
{
    if (column->nulls > 0 && column->count % 8) /* no bits after the last value */
        column->validity.start[column->validity.used - 1] &= (char)((1 << (column->count % 8)) - 1);
    PyObject *validity = column->nulls ? buffer_finish(&column->validity) : Py_NewRef(Py_None);
    PyObject *slots = buffer_finish(&column->slots), *data = buffer_finish(&column->data), *parts = NULL;
    if (validity != NULL && slots != NULL && data != NULL)
        parts = Py_BuildValue("(OLOO)", validity, (long long)column->nulls, slots, data);
    Py_XDECREF(validity);
    Py_XDECREF(slots);
    Py_XDECREF(data);
    return parts;
}

static void column_free(Column *column)
{
    buffer_free(&column->slots);
    buffer_free(&column->data);
    buffer_free(&column->validity);
}

/* --- the table ---------------------------------------------------------------------------------------- */

typedef struct {
    int flags;
    bool copy;
    int64_t scale, max_bytes, rows;
    Buffer offsets, timestamps, types, list_offsets;
    Column key, value, header_key, header_value;
} Table;

static int64_t scaled(int64_t timestamp, int64_t scale)
{
    int64_t product;
    if (__builtin_mul_overflow(timestamp, scale, &product))
        return timestamp < 0 ? INT64_MIN : INT64_MAX;
    return product;
}

static int append_headers(Table *table, const ParsedRecord *parsed)
{
    Reader r = {parsed->headers, parsed->headers_end}; /* parse_record() has checked the bounds */
    for (int32_t i = 0; i < parsed->header_count; i++) {
        int64_t length = 0;
        read_varint(&r, &length);
        if (append_copy(&table->header_key, r.position, (int32_t)length) < 0)
            return -1;
        r.position += length;
        read_varint(&r, &length);
        if (append_copy(&table->header_value, length < 0 ? NULL : r.position, (int32_t)length) < 0)
            return -1;
        if (length > 0)
            r.position += length;
    }
    return append_int(&table->list_offsets, (int32_t)table->header_key.count);
}

/* Whether the record would make a copied column larger than its limit. */
static bool exceeds_limit(const Table *table, const ParsedRecord *parsed)
{
    int64_t headers = parsed->header_count ? parsed->headers_end - parsed->headers : 0;
    if (table->header_key.data.used + headers > table->max_bytes
        || table->header_value.data.used + headers > table->max_bytes)
        return true;
    return table->copy && (table->key.data.used + parsed->key_length > table->max_bytes
                           || table->value.data.used + parsed->value_length > table->max_bytes);
}

static inline int append_bytes(Table *table, Column *column, const uint8_t *data, int32_t length,
                               const uint8_t *buffer_start, int32_t buffer_index)
{
    if (table->copy)
        return append_copy(column, data, length);
    return append_view(column, data, length, buffer_start, buffer_index);
}

static inline int append_row(Table *table, const ParsedRecord *parsed, const uint8_t *buffer_start,
                             int32_t buffer_index)
{
    int flags = table->flags;
    int64_t offset = parsed->offset, timestamp = scaled(parsed->timestamp, table->scale);
    if (flags & OFFSET && buffer_append(&table->offsets, &offset, 8) < 0)
        return -1;
    if (flags & TIMESTAMP && buffer_append(&table->timestamps, &timestamp, 8) < 0)
        return -1;
    if (flags & TIMESTAMP_TYPE && append_int(&table->types, parsed->timestamp_type) < 0)
        return -1;
    if (flags & KEY
        && append_bytes(table, &table->key, parsed->key, parsed->key_length, buffer_start, buffer_index) < 0)
        return -1;
    if (flags & VALUE
        && append_bytes(table, &table->value, parsed->value, parsed->value_length, buffer_start, buffer_index) < 0)
        return -1;
    if (flags & HEADERS && append_headers(table, parsed) < 0)
        return -1;
    table->rows++;
    return 0;
}

/* --- filling the table ------------------------------------------------------------------------------------ */

static int begin_sharing(Records *self)
{
    self->shared_bodies = PyList_New(0);
    if (self->shared_bodies == NULL)
        return -1;
    if (self->remaining == 0 || (self->rest_evicted && self->next_record == self->body_end))
        return 0;
    if (self->shared_body != NULL) /* shared by an earlier call, and not read to its end */
        return PyList_Append(self->shared_bodies, self->shared_body);
    return self->is_decompressed ? body_share(self) : 0;
}

/* Fills the table. Returns -1 with an exception, except for CorruptRecords after the first row. The next call raises
   this error. */
static int fill(Records *self, Table *table, int64_t max_rows)
{
    const uint8_t *fetched = self->view.buf;
    ParsedRecord parsed;
    while (table->rows < max_rows) {
        int result = walk_next(self, &parsed);
        if (result < 0 && (table->rows == 0 || self->error == NULL))
            return -1;
        if (result < 0)
            PyErr_Clear();
        if (result <= 0)
            return 0;
        /* A fetch has thousands of batches, and each body may have the maximum size. */
        bool has_too_many_bodies = self->decompressed_bytes > self->max_decompressed_bytes;
        if (table->rows > 0 && (has_too_many_bodies || exceeds_limit(table, &parsed))) {
            walk_unread(self, &parsed);
            return 0;
        }
        bool is_decompressed = !table->copy && self->shared_body != NULL;
        const uint8_t *buffer_start = is_decompressed ? (uint8_t *)((Slab *)self->shared_body)->memory.start : fetched;
        int32_t buffer_index = is_decompressed ? (int32_t)PyList_GET_SIZE(self->shared_bodies) : 0;
        if (append_row(table, &parsed, buffer_start, buffer_index) < 0)
            return -1;
    }
    return 0;
}

static PyObject *table_finish(Table *table, PyObject *buffers)
{
    PyObject *parts[] = {
        buffer_finish(&table->offsets), buffer_finish(&table->timestamps), buffer_finish(&table->types),
        column_finish(&table->key), column_finish(&table->value), buffer_finish(&table->list_offsets),
        column_finish(&table->header_key), column_finish(&table->header_value),
    };
    bool is_complete = true;
    for (int i = 0; i < 8; i++)
        is_complete = is_complete && parts[i] != NULL;
    PyObject *result = NULL;
    if (is_complete)
        result = Py_BuildValue("(LOOOOOOOOO)", (long long)table->rows, parts[0], parts[1], parts[2], parts[3],
                               parts[4], parts[5], parts[6], parts[7], buffers);
    for (int i = 0; i < 8; i++)
        Py_XDECREF(parts[i]);
    return result;
}

static void table_free(Table *table)
{
    buffer_free(&table->offsets);
    buffer_free(&table->timestamps);
    buffer_free(&table->types);
    buffer_free(&table->list_offsets);
    column_free(&table->key);
    column_free(&table->value);
    column_free(&table->header_key);
    column_free(&table->header_value);
}

/* The rates of the last table, per KiB of the record set. The next table is probably similar. */
static int64_t rows_per_kib = 16, key_per_kib = 128, value_per_kib = 1024;

/* Allocates the expected sizes. Growing later would cost copies and page faults. */
static int reserve(Table *table, int64_t kib, int64_t max_rows)
{
    int64_t rows = kib * rows_per_kib < max_rows ? kib * rows_per_kib : max_rows;
    struct { Buffer *buffer; int64_t size; int flag; } sizes[] = {
        {&table->offsets, 8 * rows, OFFSET},
        {&table->timestamps, 8 * rows, TIMESTAMP},
        {&table->types, 4 * rows, TIMESTAMP_TYPE},
        {&table->key.slots, (table->copy ? 4 : 16) * rows, KEY},
        {&table->value.slots, (table->copy ? 4 : 16) * rows, VALUE},
        {&table->key.data, table->copy ? kib * key_per_kib : 0, KEY},
        {&table->value.data, table->copy ? kib * value_per_kib : 0, VALUE},
        {&table->list_offsets, 4 * rows, HEADERS},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (table->flags & sizes[i].flag && buffer_grow(sizes[i].buffer, sizes[i].size + 64) < 0)
            return -1;
    return 0;
}

/* Slightly above the last rate, but below that of a decompression bomb. */
static int64_t rate(int64_t used, int64_t kib, int64_t maximum)
{
    int64_t per_kib = used / kib + used / kib / 16 + 1;
    return per_kib < maximum ? per_kib : maximum;
}

static void update_rates(const Table *table, int64_t kib)
{
    rows_per_kib = rate(table->rows, kib, 256);
    if (table->copy) {
        key_per_kib = rate(table->key.data.used, kib, 4096);
        value_per_kib = rate(table->value.data.used, kib, 16384);
    }
}

/* The offsets of a copied column begin with a zero. */
static int table_begin(Table *table)
{
    if (table->copy && (append_int(&table->key.slots, 0) < 0 || append_int(&table->value.slots, 0) < 0))
        return -1;
    return append_int(&table->list_offsets, 0) < 0 || append_int(&table->header_key.slots, 0) < 0
                || append_int(&table->header_value.slots, 0) < 0
             ? -1
             : 0;
}

static PyObject *take_table(Records *self, Table *table, int64_t max_rows)
{
    PyObject *result = NULL, *source = self->view.obj ? Py_NewRef(self->view.obj) : NULL;
    self->decompressed_bytes = 0;
    int64_t kib = ((self->end - self->next_entry) + (self->body_end - self->next_record)) / 1024 + 1;
    if (reserve(table, kib, max_rows) == 0 && table_begin(table) == 0 && (table->copy || begin_sharing(self) == 0)
        && fill(self, table, max_rows) == 0) {
        if (self->view.obj == NULL) /* it was read to its end */
            update_rates(table, kib);
        PyObject *buffers = self->shared_bodies ? Py_NewRef(self->shared_bodies) : PyList_New(0);
        if (table->rows == 0)
            result = Py_NewRef(Py_None);
        else if (buffers != NULL && (self->shared_bodies == NULL || PyList_Insert(buffers, 0, source) == 0))
            result = table_finish(table, buffers);
        Py_XDECREF(buffers);
    }
    Py_CLEAR(self->shared_bodies);
    Py_XDECREF(source);
    table_free(table);
    return result;
}

PyObject *records_take_columns(Records *self, PyObject *args)
{
    Table table = {0};
    long long max_rows, max_bytes, scale;
    if (!PyArg_ParseTuple(args, "iLLL:take_columns", &table.flags, &max_rows, &max_bytes, &scale))
        return NULL;
    table.copy = !(table.flags & AS_VIEWS);
    table.scale = scale;
    table.max_bytes = self->cooperative && max_bytes > MAX_COPIED_BYTES ? MAX_COPIED_BYTES : max_bytes;
    if (!table.copy && (self->view.len > INT32_MAX || self->max_decompressed_bytes > INT32_MAX)) {
        PyErr_SetString(PyExc_ValueError, "columns that are not copied need buffers below 2 GiB");
        return NULL;
    }
    if (records_pause_while_preparing(self))
        Py_RETURN_NONE;
    if (records_enter(self) < 0)
        return NULL;
    PyObject *result = take_table(self, &table, max_rows);
    records_leave(self);
    return result;
}
