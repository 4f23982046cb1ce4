#include "session/tensors/tensors.hpp"

#include "base/sanitizers.hpp"

#if GRADWIRE_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

#include <algorithm>
#include <utility>

namespace gradwire::session {
namespace {

bool is_gone([[maybe_unused]] const View& view) {
#if GRADWIRE_ADDRESS_SANITIZER
  return view.data != nullptr &&
         __asan_region_is_poisoned(view.data, view.count * element_bytes(view.dtype)) != nullptr;
#else
  return false;
#endif
}

View view_of(std::span<const float> scale) {  // callers only read the view
  return {const_cast<float*>(scale.data()), scale.size(), DType::f32};
}

void refuse_own_overlap(const std::string& name, const std::string& what, const View& view, const std::string& other,
                        const View& with) {
  Extents one;
  one.add(with, {});
  if (one.overlapped(view, Extents::kGradient)) {
    throw Error(ErrorCode::invalid_argument, "add: " + what + " of \"" + name + "\" overlaps " + other +
                                                 " of the same tensor; give it memory of its own");
  }
}

std::string shape_of(DType dtype, std::uint64_t count) {
  return std::string(to_string(dtype)) + " x " + std::to_string(count);
}

}  // namespace

void Tensors::check_parameters(const std::string& name, const View& gradient, const std::vector<View>& beside) const {
  for (std::size_t i = 0; i < beside.size(); ++i) {
    const View& one = beside[i];
    const std::string what =
        "add: " + (i == 0 ? std::string("the parameter") : "state " + std::to_string(i)) + " of \"" + name + "\"";
    if (one.count != gradient.count || one.dtype != gradient.dtype) {
      throw Error(ErrorCode::invalid_argument, what + " is " + shape_of(one.dtype, one.count) + ", its gradient " +
                                                   shape_of(gradient.dtype, gradient.count) + "; they must be alike");
    }
    if (one.data == nullptr && one.count > 0) {
      throw Error(ErrorCode::invalid_argument, what + " has null data with count " + std::to_string(one.count));
    }
    runner_.check_memory(one, what);
    const auto part = Extents::kParameter + static_cast<std::uint32_t>(i);
    check_overlap(name, one, part);
    refuse_own_overlap(name, Extents::name_of(part), one, "the gradient", gradient);
    for (std::size_t before = 0; before < i; ++before) {
      refuse_own_overlap(name, Extents::name_of(part), one,
                         Extents::name_of(Extents::kParameter + static_cast<std::uint32_t>(before)), beside[before]);
    }
  }
}

void Tensors::check_overlap(const std::string& name, const View& view, std::uint32_t part) const {
  if (const auto owner = extents_.overlapped(view, part)) {
    throw Error(ErrorCode::invalid_argument,
                "add: " + Extents::name_of(part) + " of \"" + name + "\" overlaps " + Extents::name_of(owner->part) +
                    " of \"" + infos_[owner->tensor].name +
                    "\", which was added before; give each tensor memory of its own, and add tied weights once");
  }
}

TensorInfo Tensors::check(const std::string& name, const View& gradient, const std::vector<View>& beside,
                          std::uint32_t ndim) const {
  const std::string what = "add: \"" + name + "\"";
  if (element_bytes(gradient.dtype) == 0) {
    throw Error(ErrorCode::invalid_argument, what + " has unknown dtype " +
                                                 std::to_string(static_cast<int>(gradient.dtype)) +
                                                 "; use f32, f16, bf16 or f64");
  }
  if (gradient.data == nullptr && gradient.count > 0) {
    throw Error(ErrorCode::invalid_argument, what + " has null data with count " + std::to_string(gradient.count));
  }
  runner_.check_memory(gradient, what);
  if (!name.empty() && names_.contains(name)) {
    throw Error(ErrorCode::invalid_argument, what + " was added already; names must differ");
  }
  check_overlap(name, gradient, Extents::kGradient);
  check_parameters(name, gradient, beside);
  TensorInfo info{name, gradient.count, gradient.dtype, ndim};
  info.parameters = static_cast<std::uint32_t>(beside.size());
  return info;
}

void Tensors::check_scale(TensorInfo& info, const View& gradient, std::span<const float> scale) const {
  if (scale.empty()) {
    return;
  }
  if (scale.size() != info.count) {
    throw Error(ErrorCode::invalid_argument, "add: the scale of \"" + info.name + "\" has " +
                                                 std::to_string(scale.size()) + " elements, its gradient " +
                                                 std::to_string(info.count) + "; they must be as many");
  }
  runner_.check_memory(view_of(scale), "add: the scale of \"" + info.name + "\"");
  check_overlap(info.name, view_of(scale), Extents::kScale);
  refuse_own_overlap(info.name, "the scale", view_of(scale), "the gradient", gradient);
  info.scaled = true;
}

TensorId Tensors::add(TensorInfo info, const View& gradient, std::vector<View> beside, std::span<const float> scale) {
  names_.insert(info.name);
  const auto index = static_cast<std::uint32_t>(infos_.size());
  extents_.add(gradient, {index, Extents::kGradient});
  for (std::size_t i = 0; i < beside.size(); ++i) {
    extents_.add(beside[i], {index, Extents::kParameter + static_cast<std::uint32_t>(i)});
  }
  extents_.add(view_of(scale), {index, Extents::kScale});
  infos_.push_back(std::move(info));
  parameters_.push_back(std::move(beside));
  added_.push_back(gradient);
  scales_.push_back(scale);
  memory_.push_back({gradient, false, scale.data()});
  return static_cast<TensorId>(infos_.size() - 1);
}

View Tensors::scale_view(std::size_t index) const { return view_of(scales_[index]); }

void Tensors::check(TensorId id) const {
  if (static_cast<std::size_t>(id) >= infos_.size()) {
    throw Error(ErrorCode::invalid_argument, "ready: tensor id " + std::to_string(static_cast<std::size_t>(id)) +
                                                 " is not one of the " + std::to_string(infos_.size()) +
                                                 " that add() returned");
  }
}

void Tensors::check_gradient(std::size_t index, const View& gradient) const {
  const TensorInfo& tensor = infos_[index];
  if (gradient.count != tensor.count || gradient.dtype != tensor.dtype ||
      (gradient.data == nullptr && gradient.count > 0)) {
    throw Error(ErrorCode::invalid_argument, "ready: \"" + tensor.name + "\" was added as " +
                                                 shape_of(tensor.dtype, tensor.count) + ", but is now " +
                                                 shape_of(gradient.dtype, gradient.count) +
                                                 (gradient.data == nullptr ? " with null data" : ""));
  }
}

void Tensors::begin_step() {
  for (std::size_t i = 0; i < added_.size(); ++i) {
    memory_[i] = {added_[i], false, scales_[i].data()};
  }
}

void Tensors::give(std::size_t index, const View* gradient, bool zero) {
  if (is_gone(gradient != nullptr ? *gradient : added_[index])) {
    throw Error(ErrorCode::invalid_argument,
                "ready: the memory of \"" + name(index) + "\" has been freed; declare gradients before the session");
  }
  if (gradient != nullptr) {
    check_gradient(index, *gradient);
    runner_.check_memory(*gradient, "ready: \"" + name(index) + "\"");
    memory_[index].gradient = *gradient;
  }
  memory_[index].zero = zero;
}

bool Tensors::is_freed(std::size_t index) const { return is_gone(memory_[index].gradient); }

}  // namespace gradwire::session
