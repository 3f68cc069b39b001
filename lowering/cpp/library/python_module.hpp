// What the Python module of a kernel does with its arguments and results. The module carries the
// part between the lines `//#`, what it uses of the other headers, and the part below.
#pragma once

//#
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

//#
namespace nb = nanobind;

namespace {

[[noreturn]] void mistaken(const std::string &message)
{
    throw nb::value_error(message.c_str());
}

// `module.name`, looked up once. It is never given back: this outlives the interpreter. (No static
// with an initialiser: an import lets other threads run, which would wait for it.)
nb::handle once(PyObject *&kept, const char *module, const char *name)
{
    if (kept == nullptr) {
        kept = nb::module_::import_(module).attr(name).ptr();
        Py_INCREF(kept);
    }
    return kept;
}

// An element type: its name, and how NumPy's arrays tell it (no kind: they have no such numbers).
struct element_type {
    const char *name;
    char kind;
    int bytes;
    PyObject *torch = nullptr; // torch's and NumPy's objects, once they were needed
    PyObject *numpy = nullptr;
};

element_type &type_named(const char *name)
{
    static element_type types[] = {
        {"float16", 'f', 2}, {"float32", 'f', 4}, {"float64", 'f', 8}, {"bfloat16", 0, 2},
        {"int8", 'i', 1},    {"int16", 'i', 2},   {"int32", 'i', 4},   {"int64", 'i', 8},
        {"uint8", 'u', 1},   {"uint32", 'u', 4},  {"bool", 'b', 1},
    };
    const auto found = std::find_if(std::begin(types), std::end(types), [name](const auto &type) {
        return std::strcmp(type.name, name) == 0;
    });
    if (found == std::end(types)) {
        throw std::logic_error(name);
    }
    return *found;
}

// Where the elements of an array are: the first one, and the bytes from the lowest to the highest.
struct elements {
    void *place = nullptr;
    bool read_only = false;
    std::vector<int64_t> shape;
    uintptr_t lowest = 0;
    uintptr_t end = 0;
};

// Sets the bytes of an array with these steps from one element to the next; none: it is contiguous.
void set_bytes(elements &array, int64_t element_bytes, const std::vector<int64_t> &strides)
{
    array.lowest = array.end = reinterpret_cast<uintptr_t>(array.place);
    int64_t step = element_bytes;
    for (std::size_t axis = array.shape.size(); axis-- > 0;) {
        if (array.shape[axis] == 0) {
            array.lowest = array.end = 0;
            return;
        }
        const int64_t stride = strides.empty() ? step : strides[axis];
        const int64_t reach = (array.shape[axis] - 1) * stride;
        (reach < 0 ? array.lowest : array.end) += static_cast<uintptr_t>(reach);
        step *= array.shape[axis];
    }
    array.end += static_cast<uintptr_t>(element_bytes);
}

elements elements_of(const nb::object &array)
{
    // Public, and there for every type: the buffer protocol has no bfloat16.
    const nb::object told = array.attr("__array_interface__");
    const nb::object data = told["data"];
    elements result;
    result.place = PyLong_AsVoidPtr(nb::object(data[0]).ptr());
    result.read_only = nb::cast<bool>(data[1]);
    for (const nb::handle extent : nb::object(told["shape"])) {
        result.shape.push_back(nb::cast<int64_t>(extent));
    }
    std::vector<int64_t> strides;
    const nb::object steps = told["strides"];
    if (!steps.is_none()) {
        for (const nb::handle step : steps) {
            strides.push_back(nb::cast<int64_t>(step));
        }
    }
    set_bytes(result, nb::cast<int64_t>(array.attr("itemsize")), strides);
    return result;
}

[[maybe_unused]] void *writable(const elements &given, const char *name)
{
    if (given.read_only) {
        mistaken(std::string(name) + " is read-only");
    }
    return given.place;
}

// An argument as an array; torch's bfloat16 arrives as int16, which NumPy knows.
struct argument {
    nb::object given;
    nb::object dense; // C-contiguous: `given` itself, or a copy
    elements held{};  // of `dense`; the shape is that of both
    bool torch = false;
    nb::object original; // of an output that is given: what the caller gets back
    elements own{};      // of `given`, where that is not `dense`

    int64_t extent(std::size_t axis) const { return held.shape[axis]; }
    const elements &memory() const { return dense.is(given) ? held : own; }
};

// ---- Arrays and tensors that are as they must be: read with few steps, none of which copies.

PyTypeObject *array_type = nullptr;     // numpy.ndarray, once an array was seen
PyTypeObject *tensor_type = nullptr;    // torch.Tensor, once a tensor was seen
PyTypeObject *parameter_type = nullptr; // torch.nn.Parameter, likewise

// What NumPy's arrays tell of themselves ("The array interface protocol" of NumPy's manual).
struct array_interface {
    int two;
    int rank;
    char kind;
    int element_bytes;
    int flags;
    Py_ssize_t *shape;
    Py_ssize_t *strides;
    void *data;
};
// Flags: contiguous, aligned and in this machine's order; and that it may be written.
constexpr int usual = 0x1 | 0x100 | 0x200;
constexpr int may_be_written = 0x400;

bool read_array(const nb::handle &value, const element_type &type, std::size_t rank,
                elements &result)
{
    static PyObject *const name = PyUnicode_InternFromString("__array_struct__");
    const nb::object capsule = nb::steal(PyObject_GetAttr(value.ptr(), name));
    const auto *const told =
        capsule.is_valid()
            ? static_cast<array_interface *>(PyCapsule_GetPointer(capsule.ptr(), nullptr))
            : nullptr;
    if (told == nullptr) {
        PyErr_Clear();
        return false;
    }
    if (told->two != 2 || told->kind != type.kind || told->element_bytes != type.bytes ||
        static_cast<std::size_t>(told->rank) != rank || (told->flags & usual) != usual) {
        return false;
    }
    result.place = told->data;
    result.read_only = (told->flags & may_be_written) == 0;
    result.shape.assign(told->shape, told->shape + told->rank);
    set_bytes(result, type.bytes, {});
    return true;
}

// What a method without arguments returns, or nothing.
nb::object called(const nb::handle &value, PyObject *method)
{
    return nb::steal(PyObject_CallMethodNoArgs(value.ptr(), method));
}

bool read_tensor(const nb::handle &value, element_type &type, std::size_t rank, elements &result)
{
    static PyObject *const dtype = PyUnicode_InternFromString("dtype");
    static PyObject *const is_cpu = PyUnicode_InternFromString("is_cpu");
    static PyObject *const shape = PyUnicode_InternFromString("shape");
    static PyObject *const is_contiguous = PyUnicode_InternFromString("is_contiguous");
    static PyObject *const is_neg = PyUnicode_InternFromString("is_neg");
    static PyObject *const data_ptr = PyUnicode_InternFromString("data_ptr");
    const PyObject *const wanted = once(type.torch, "torch", type.name).ptr();
    PyObject *const tensor = value.ptr();
    const bool fits = nb::steal(PyObject_GetAttr(tensor, dtype)).ptr() == wanted &&
                      nb::steal(PyObject_GetAttr(tensor, is_cpu)).ptr() == Py_True &&
                      called(value, is_contiguous).ptr() == Py_True &&
                      called(value, is_neg).ptr() == Py_False;
    const nb::object extents = fits ? nb::steal(PyObject_GetAttr(tensor, shape)) : nb::object();
    if (extents.is_valid() && PyTuple_Check(extents.ptr()) && nb::len(extents) == rank) {
        for (std::size_t axis = 0; axis < rank && PyErr_Occurred() == nullptr; ++axis) {
            const auto place = static_cast<Py_ssize_t>(axis);
            PyObject *const extent = PyTuple_GET_ITEM(extents.ptr(), place);
            result.shape.push_back(PyLong_AsLongLong(extent));
        }
        const nb::object data = called(value, data_ptr);
        result.place = data.is_valid() ? PyLong_AsVoidPtr(data.ptr()) : nullptr;
    }
    if (PyErr_Occurred() != nullptr) { // a tensor that has no memory
        PyErr_Clear();
        result.place = nullptr;
    }
    if (result.place == nullptr) { // the memory of an empty tensor, too
        result.shape.clear();
        return false;
    }
    set_bytes(result, type.bytes, {});
    return true;
}

// Whether `value` is an array or a tensor that could be read so.
bool take_usual(const nb::object &value, element_type &type, std::size_t rank, argument &result)
{
    const PyTypeObject *const kind = Py_TYPE(value.ptr());
    result.torch = kind == tensor_type || kind == parameter_type;
    const bool taken = result.torch         ? read_tensor(value, type, rank, result.held)
                       : kind == array_type ? read_array(value, type, rank, result.held)
                                            : false;
    if (taken) {
        result.given = result.dense = value;
    }
    return taken;
}

// ---- Any others.

std::string text_of(const nb::handle &value) { return nb::str(value).c_str(); }

bool is_torch(const nb::object &value)
{
    return text_of(value.type().attr("__module__")).rfind("torch", 0) == 0;
}

nb::object numpy(const char *name) { return nb::module_::import_("numpy").attr(name); }

PyTypeObject *type_in(const char *module, const char *name)
{
    PyObject *kept = nullptr;
    return reinterpret_cast<PyTypeObject *>(once(kept, module, name).ptr());
}

argument take(nb::object value, const char *name, const char *dtype, std::size_t rank)
{
    argument result;
    if (take_usual(value, type_named(dtype), rank, result)) {
        return result;
    }
    result.torch = is_torch(value);
    std::string found;
    if (result.torch) {
        if (tensor_type == nullptr) {
            parameter_type = type_in("torch.nn", "Parameter");
            tensor_type = type_in("torch", "Tensor");
        }
        value = value.attr("detach")();
        found = text_of(value.attr("dtype")).substr(6);
        if (found == "bfloat16") {
            value = value.attr("view")(nb::module_::import_("torch").attr("int16"));
        }
    }
    result.given = numpy("asarray")(value);
    if (!result.torch) {
        if (array_type == nullptr) {
            array_type = type_in("numpy", "ndarray");
        }
        const nb::object kind = result.given.attr("dtype");
        // Numbers whose bytes stand in the other order have the same name.
        found = text_of(kind.attr(nb::cast<bool>(kind.attr("isnative")) ? "name" : "str"));
    }
    if (found != dtype) {
        mistaken(std::string(name) + " must be " + dtype + ", not " + found);
    }
    // Unlike `ascontiguousarray`, this leaves an array without axes as it is.
    result.dense = numpy("asarray")(result.given, nb::arg("order") = "C");
    result.held = elements_of(result.dense);
    if (result.held.shape.size() != rank) {
        mistaken(std::string(name) + " must have " + std::to_string(rank) +
                 " dimensions, not " + std::to_string(result.held.shape.size()));
    }
    if (!result.dense.is(result.given)) {
        result.own = elements_of(result.given);
    }
    return result;
}

// The Python number that a scalar of NumPy or PyTorch is; anything else as it is.
[[maybe_unused]] nb::object plain(const nb::object &value)
{
    if (PyFloat_CheckExact(value.ptr()) || PyLong_CheckExact(value.ptr())) {
        return value;
    }
    try {
        return nb::hasattr(value, "item") ? value.attr("item")() : value;
    } catch (const nb::python_error &) {
        return value;
    }
}

[[noreturn]] [[maybe_unused]] void mistaken(const nb::object &value, const char *name,
                                            const char *what)
{
    std::string shown = nb::repr(value).c_str();
    if (shown.size() > 60 || shown.find('\n') != std::string::npos) { // an array, for instance
        shown = "a " + text_of(value.type().attr("__name__"));
    }
    mistaken(std::string(name) + " = " + shown + " " + what);
}

// A bool is 0 or 1.
[[maybe_unused]] int64_t take_integer(const nb::object &value, const char *name)
{
    const nb::object number = plain(value);
    if (!nb::isinstance<nb::int_>(number)) {
        mistaken(value, name, "is no integer");
    }
    int overflow = 0;
    const int64_t result = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
    if (overflow != 0) {
        mistaken(value, name, "does not fit 64 bits");
    }
    return result;
}

[[maybe_unused]] int64_t take_bool(const nb::object &value, const char *name)
{
    const nb::object number = plain(value);
    const bool whole = nb::isinstance<nb::int_>(number);
    const int64_t result = whole ? take_integer(number, name) : -1;
    if (result != 0 && result != 1) {
        mistaken(value, name, "is no bool");
    }
    return result;
}

[[maybe_unused]] double take_number(const nb::object &value, const char *name)
{
    const nb::object number = plain(value);
    if (!nb::isinstance<nb::float_>(number) && !nb::isinstance<nb::int_>(number)) {
        mistaken(value, name, "is no number");
    }
    const double result = PyFloat_AsDouble(number.ptr());
    if (PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        mistaken(value, name, "is no float");
    }
    return result;
}

[[maybe_unused]] argument take_optional(const nb::object &value, const char *name,
                                        const char *dtype, std::size_t rank)
{
    return value.is_none() ? argument{} : take(value, name, dtype, rank);
}

void check_extent(const argument &tensor, std::size_t axis, int64_t expected, bool may_repeat,
                  const char *name, const char *text)
{
    const int64_t actual = tensor.extent(axis);
    if (actual == expected || (may_repeat && actual == 1)) {
        return;
    }
    mistaken(std::string(name) + " has extent " + std::to_string(actual) + " on axis " +
             std::to_string(axis) + ", expected " + text + " = " + std::to_string(expected));
}

[[maybe_unused]] void check_apart(const argument &written, const char *name,
                                  const argument &other, const char *other_name)
{
    if (written.memory().lowest < other.memory().end &&
        other.memory().lowest < written.memory().end) {
        mistaken(std::string(name) + " is written and must not overlap " + other_name);
    }
}

// A new array; one of int16 for numbers of bfloat16.
[[maybe_unused]] argument make(const std::vector<int64_t> &shape, const char *dtype)
{
    element_type &type = type_named(dtype);
    const element_type &stored = type.kind == 0 ? type_named("int16") : type;
    if (type.numpy == nullptr) {
        type.numpy = numpy("dtype")(stored.name).release().ptr();
    }
    const nb::object extents =
        nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
        PyTuple_SET_ITEM(extents.ptr(), static_cast<Py_ssize_t>(axis),
                         PyLong_FromLongLong(shape[axis]));
    }
    static PyObject *empty = nullptr;
    argument result;
    result.dense = result.given = once(empty, "numpy", "empty")(extents, nb::handle(type.numpy));
    if (!read_array(result.dense, stored, shape.size(), result.held)) {
        result.held = elements_of(result.dense);
    }
    return result;
}

[[maybe_unused]] std::string listed(const std::vector<int64_t> &shape)
{
    std::string text;
    for (const int64_t extent : shape) {
        text += (text.empty() ? "" : ", ") + std::to_string(extent);
    }
    return "[" + text + "]";
}

// One of `count` outputs that are given as a tuple or list; None where none is given.
[[maybe_unused]] nb::object part(const nb::object &out, std::size_t place, std::size_t count)
{
    if (out.is_none()) {
        return out;
    }
    const bool several = nb::isinstance<nb::tuple>(out) || nb::isinstance<nb::list>(out);
    if (!several || nb::len(out) != count) {
        mistaken("out must be a tuple of " + std::to_string(count));
    }
    return out[place];
}

// The array of a result: the caller's, which must have this shape, or a new one.
[[maybe_unused]] argument output(const nb::object &given, const char *name,
                                 const char *dtype, const std::vector<int64_t> &shape)
{
    if (!given.is_none()) {
        argument result = take(given, name, dtype, shape.size());
        if (result.held.shape != shape) {
            mistaken(std::string(name) + " has shape " + listed(result.held.shape) +
                     ", expected " + listed(shape));
        }
        writable(result.memory(), name);
        result.original = given;
        return result;
    }
    return make(shape, dtype);
}

// Copies a result to its array, if that is not contiguous and the result was computed elsewhere.
[[maybe_unused]] void copy_back(const argument &written)
{
    if (!written.dense.is(written.given)) {
        numpy("copyto")(written.given, written.dense);
    }
}

[[maybe_unused]] nb::object give(const argument &output, const char *dtype, bool as_torch)
{
    if (output.original.is_valid()) {
        return output.original;
    }
    const nb::object &made = output.dense;
    const bool narrow = type_named(dtype).kind == 0; // bfloat16
    if (as_torch) {
        static PyObject *from_numpy = nullptr;
        const nb::object tensor = once(from_numpy, "torch", "from_numpy")(made);
        return narrow ? tensor.attr("view")(nb::module_::import_("torch").attr(dtype)) : tensor;
    }
    return narrow ? made.attr("view")(nb::module_::import_("ml_dtypes").attr(dtype)) : made;
}

// Raises ValueError for the broken condition `text`, with the values that it is about.
[[noreturn]] [[maybe_unused]] void
refuse(const char *text, std::initializer_list<std::pair<const char *, nb::object>> values)
{
    std::string message = text;
    for (const auto &[name, value] : values) {
        message += message.size() == std::strlen(text) ? " (" : ", ";
        message += std::string(name) + " = " + nb::repr(value).c_str();
    }
    mistaken(values.size() == 0 ? message : message + ")");
}

void check_status(int64_t status, std::initializer_list<std::pair<int64_t, const char *>> refusals)
{
    if (status == -1) {
        throw std::bad_alloc();
    }
    for (const auto &[number, text] : refusals) {
        if (status == number) {
            mistaken(text);
        }
    }
    if (status != 0) {
        throw std::runtime_error("the kernel returned " + std::to_string(status));
    }
}

} // namespace
