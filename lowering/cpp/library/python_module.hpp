// What the Python module of a kernel does with its arguments and results. The module carries the
// part between the lines `//#`, what it uses of the other headers, and the part below.
#pragma once

//#
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
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

// Where the elements of a C-contiguous array are.
struct elements {
    void *place = nullptr;
    bool read_only = false;
    std::vector<int64_t> shape;
};

elements elements_of(const nb::object &array)
{
    // Public, and there for every type: the buffer protocol has no bfloat16.
    const nb::object told = array.attr("__array_interface__");
    const nb::object data = told["data"];
    elements result{PyLong_AsVoidPtr(nb::object(data[0]).ptr()), nb::cast<bool>(data[1]), {}};
    for (const nb::handle extent : nb::object(told["shape"])) {
        result.shape.push_back(nb::cast<int64_t>(extent));
    }
    return result;
}

[[maybe_unused]] void *writable(const elements &given, const char *name)
{
    if (given.read_only) {
        mistaken(std::string(name) + " is read-only");
    }
    return given.place;
}

// An argument as a NumPy array; torch's bfloat16 arrives as int16, which NumPy knows.
struct argument {
    nb::object given;
    nb::object dense; // C-contiguous: `given` itself, or a copy
    elements held{};  // of `dense`; the shape is that of both
    bool torch = false;
    nb::object original; // of an output that is given: what the caller gets back

    int64_t extent(std::size_t axis) const { return held.shape[axis]; }
};

std::string text_of(const nb::handle &value) { return nb::str(value).c_str(); }

bool is_torch(const nb::object &value)
{
    return text_of(value.type().attr("__module__")).rfind("torch", 0) == 0;
}

nb::object numpy(const char *name) { return nb::module_::import_("numpy").attr(name); }

argument take(nb::object value, const char *name, const std::string &dtype, std::size_t rank)
{
    argument result;
    result.torch = is_torch(value);
    std::string found;
    if (result.torch) {
        value = value.attr("detach")();
        found = text_of(value.attr("dtype")).substr(6);
        if (found == "bfloat16") {
            value = value.attr("view")(nb::module_::import_("torch").attr("int16"));
        }
    }
    result.given = numpy("asarray")(value);
    if (!result.torch) {
        found = text_of(result.given.attr("dtype").attr("name"));
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
    return result;
}

// The Python number that a scalar of NumPy or PyTorch is; anything else as it is.
[[maybe_unused]] nb::object plain(const nb::object &value)
{
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
                                        const std::string &dtype, std::size_t rank)
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
    if (nb::cast<bool>(numpy("may_share_memory")(written.given, other.given))) {
        mistaken(std::string(name) + " is written and must not overlap " + other_name);
    }
}

[[maybe_unused]] nb::object make(const nb::tuple &shape, const std::string &dtype)
{
    return numpy("empty")(shape, dtype == "bfloat16" ? "int16" : dtype.c_str());
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
                                 const std::string &dtype, const std::vector<int64_t> &shape)
{
    if (!given.is_none()) {
        argument result = take(given, name, dtype, shape.size());
        if (result.held.shape != shape) {
            mistaken(std::string(name) + " has shape " + listed(result.held.shape) +
                     ", expected " + listed(shape));
        }
        writable(elements_of(result.given), name);
        result.original = given;
        return result;
    }
    nb::list extents;
    for (const int64_t extent : shape) {
        extents.append(extent);
    }
    argument result;
    result.dense = result.given = make(nb::tuple(extents), dtype);
    result.held = elements_of(result.dense);
    return result;
}

// Copies a result to its array, if that is not contiguous and the result was computed elsewhere.
[[maybe_unused]] void copy_back(const argument &written)
{
    if (!written.dense.is(written.given)) {
        numpy("copyto")(written.given, written.dense);
    }
}

[[maybe_unused]] nb::object give(const argument &output, const std::string &dtype, bool as_torch)
{
    if (output.original.is_valid()) {
        return output.original;
    }
    const nb::object &made = output.dense;
    if (as_torch) {
        const auto torch = nb::module_::import_("torch");
        const nb::object tensor = torch.attr("from_numpy")(made);
        return dtype == "bfloat16" ? tensor.attr("view")(torch.attr("bfloat16")) : tensor;
    }
    if (dtype == "bfloat16") {
        return made.attr("view")(nb::module_::import_("ml_dtypes").attr("bfloat16"));
    }
    return made;
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
