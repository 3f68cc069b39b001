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

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

//#
namespace py = pybind11;

namespace {

// An argument as a NumPy array; torch's bfloat16 arrives as int16, which NumPy knows.
struct argument {
    py::array given;
    py::array dense; // C-contiguous: `given` itself, or a copy
    bool torch = false;
};

bool is_torch(const py::object &value)
{
    const auto module = py::str(py::type::of(value).attr("__module__"));
    return std::string(module).rfind("torch", 0) == 0;
}

argument take(py::object value, const char *name, const std::string &dtype, py::ssize_t rank)
{
    argument result;
    result.torch = is_torch(value);
    std::string found;
    if (result.torch) {
        value = value.attr("detach")();
        found = std::string(py::str(value.attr("dtype"))).substr(6);
        if (found == "bfloat16") {
            value = value.attr("view")(py::module_::import("torch").attr("int16"));
        }
    }
    result.given = py::module_::import("numpy").attr("asarray")(value);
    if (!result.torch) {
        found = std::string(py::str(result.given.dtype().attr("name")));
    }
    if (found != dtype) {
        throw py::value_error(std::string(name) + " must be " + dtype + ", not " + found);
    }
    if (result.given.ndim() != rank) {
        throw py::value_error(std::string(name) + " must have " + std::to_string(rank) +
                              " dimensions, not " + std::to_string(result.given.ndim()));
    }
    // Unlike `ascontiguousarray`, this leaves an array without axes as it is.
    result.dense = py::module_::import("numpy").attr("asarray")(result.given,
                                                               py::arg("order") = "C");
    return result;
}

// The Python number that a scalar of NumPy or PyTorch is; anything else as it is.
[[maybe_unused]] py::object plain(const py::object &value)
{
    try {
        return py::hasattr(value, "item") ? value.attr("item")() : value;
    } catch (const py::error_already_set &) {
        return value;
    }
}

[[noreturn]] [[maybe_unused]] void mistaken(const py::object &value, const char *name,
                                            const char *what)
{
    throw py::value_error(std::string(name) + " = " + std::string(py::repr(value)) + " " + what);
}

// A bool is 0 or 1.
[[maybe_unused]] int64_t take_integer(const py::object &value, const char *name)
{
    const py::object number = plain(value);
    if (!py::isinstance<py::int_>(number)) {
        mistaken(value, name, "is no integer");
    }
    int overflow = 0;
    const int64_t result = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
    if (overflow != 0) {
        mistaken(value, name, "does not fit 64 bits");
    }
    return result;
}

[[maybe_unused]] int64_t take_bool(const py::object &value, const char *name)
{
    const py::object number = plain(value);
    const bool whole = py::isinstance<py::int_>(number);
    const int64_t result = whole ? take_integer(number, name) : -1;
    if (result != 0 && result != 1) {
        mistaken(value, name, "is no bool");
    }
    return result;
}

[[maybe_unused]] double take_number(const py::object &value, const char *name)
{
    const py::object number = plain(value);
    if (!py::isinstance<py::float_>(number) && !py::isinstance<py::int_>(number)) {
        mistaken(value, name, "is no number");
    }
    const double result = PyFloat_AsDouble(number.ptr());
    if (PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        mistaken(value, name, "is no float");
    }
    return result;
}

[[maybe_unused]] argument take_optional(const py::object &value, const char *name,
                                        const std::string &dtype, py::ssize_t rank)
{
    return value.is_none() ? argument{} : take(value, name, dtype, rank);
}

void check_extent(const argument &tensor, py::ssize_t axis, int64_t expected, bool may_repeat,
                  const char *name, const char *text)
{
    const int64_t actual = tensor.given.shape(axis);
    if (actual == expected || (may_repeat && actual == 1)) {
        return;
    }
    throw py::value_error(std::string(name) + " has extent " + std::to_string(actual) +
                          " on axis " + std::to_string(axis) + ", expected " + text + " = " +
                          std::to_string(expected));
}

[[maybe_unused]] void check_apart(const argument &written, const char *name,
                                  const argument &other, const char *other_name)
{
    const auto shared = py::module_::import("numpy").attr("may_share_memory");
    if (shared(written.given, other.given).cast<bool>()) {
        throw py::value_error(std::string(name) + " is written and must not overlap " +
                              other_name);
    }
}

[[maybe_unused]] py::array make(const py::tuple &shape, const std::string &dtype)
{
    return py::module_::import("numpy").attr("empty")(
        shape, dtype == "bfloat16" ? std::string("int16") : dtype);
}

[[maybe_unused]] py::object give(const py::array &made, const std::string &dtype, bool as_torch)
{
    if (as_torch) {
        const auto torch = py::module_::import("torch");
        const py::object tensor = torch.attr("from_numpy")(made);
        return dtype == "bfloat16" ? tensor.attr("view")(torch.attr("bfloat16")) : tensor;
    }
    if (dtype == "bfloat16") {
        return made.attr("view")(py::module_::import("ml_dtypes").attr("bfloat16"));
    }
    return made;
}

// What the arguments break, with the values that say why.
[[noreturn]] [[maybe_unused]] void
refuse(const char *text, std::initializer_list<std::pair<const char *, py::object>> values)
{
    std::string message = text;
    for (const auto &[name, value] : values) {
        message += message.size() == std::strlen(text) ? " (" : ", ";
        message += std::string(name) + " = " + std::string(py::repr(value));
    }
    throw py::value_error(values.size() == 0 ? message : message + ")");
}

void check_status(int64_t status, std::initializer_list<std::pair<int64_t, const char *>> refusals)
{
    if (status == -1) {
        throw std::bad_alloc();
    }
    for (const auto &[number, text] : refusals) {
        if (status == number) {
            throw py::value_error(text);
        }
    }
    if (status != 0) {
        throw std::runtime_error("the kernel returned " + std::to_string(status));
    }
}

} // namespace
