// The Python module gradwire_torch: checks that PyTorch has the version it was built for, then loads _gradwire_torch
// from the file beside it, which is linked with PyTorch's libraries. With another PyTorch the system's loader would
// load those libraries a second time, and their initialisation ends the process before any code of ours runs. So this
// file is linked with none of them and uses only Python.
#include <Python.h>
#include <dlfcn.h>

#include <memory>
#include <string>
#include <string_view>

#include "plugins/torch_c10d/own_folder.hpp"

namespace {

struct Release {
  void operator()(PyObject* object) const noexcept { Py_DECREF(object); }
};
using Object = std::unique_ptr<PyObject, Release>;  // null: an exception is set

std::string text_of(PyObject* object) {
  const Object text(object == nullptr ? nullptr : PyObject_Str(object));
  const char* const utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  return utf8 == nullptr ? "" : utf8;
}

// "2.1.0+cpu" is 2.1.0.
std::string_view without_build(std::string_view version) { return version.substr(0, version.find('+')); }

// Whether this PyTorch has the version of the build; if not, sets an exception.
bool check_torch() {
  const Object torch(PyImport_ImportModule("torch"));
  if (!torch) {
    return false;
  }
  const Object version(PyObject_GetAttrString(torch.get(), "__version__"));
  const std::string here = text_of(version.get());
  if (!version || here.empty()) {
    return false;
  }
  if (without_build(here) == without_build(GRADWIRE_TORCH_VERSION)) {
    return true;
  }
  const Object place(PyObject_GetAttrString(torch.get(), "__file__"));
  PyErr_Clear();
  PyErr_Format(PyExc_ImportError,
               "gradwire_torch was built for PyTorch %s, but this Python has PyTorch %s (%s); build gradwire_torch for "
               "that one (cmake -DGRADWIRE_PYTHON=/path/to/its/python), or use a Python that has PyTorch %s",
               GRADWIRE_TORCH_VERSION, here.c_str(), text_of(place.get()).c_str(), GRADWIRE_TORCH_VERSION);
  return false;
}

Object load_backend() {
  constexpr const char* kName = "_gradwire_torch";
  const std::string file = gradwire::torch_c10d::own_folder() + kName + GRADWIRE_TORCH_SUFFIX;
  const Object tools(PyImport_ImportModule("importlib.util"));
  const Object spec(tools ? PyObject_CallMethod(tools.get(), "spec_from_file_location", "ss", kName, file.c_str())
                          : nullptr);
  Object module(spec ? PyObject_CallMethod(tools.get(), "module_from_spec", "O", spec.get()) : nullptr);
  const Object loader(module ? PyObject_GetAttrString(spec.get(), "loader") : nullptr);
  const Object done(loader ? PyObject_CallMethod(loader.get(), "exec_module", "O", module.get()) : nullptr);
  return done ? std::move(module) : nullptr;
}

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "gradwire_torch", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_gradwire_torch() {
  if (!check_torch()) {
    return nullptr;
  }
  const Object backend = load_backend();
  Object module(backend ? PyModule_Create(&definition) : nullptr);
  if (!module) {
    return nullptr;
  }
  for (const char* const name : {"__doc__", "__version__", "_create", "Hook", "ReduceScatter", "name_buckets"}) {
    const Object value(PyObject_GetAttrString(backend.get(), name));
    if (!value || PyObject_SetAttrString(module.get(), name, value.get()) != 0) {
      return nullptr;
    }
  }
  return module.release();
}
