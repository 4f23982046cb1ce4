// Tensors holds the tensors of a session: their gradients, parameters and scales as they were added, the gradients of
// the current step, and the checks of both.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "gradwire/session.hpp"
#include "plan/plan.hpp"
#include "session/runner/runner.hpp"
#include "session/tensors/extents.hpp"

namespace gradwire::session {

class Tensors {
 public:
  /// `runner` checks in which memory the tensors are, and must outlive this.
  explicit Tensors(Runner& runner) : runner_(runner) {}

  /// Checks a tensor before add(). `beside` holds the parameter and its optimizer state. Throws
  /// Error(invalid_argument), which names what is wrong, and changes nothing.
  TensorInfo check(const std::string& name, const View& gradient, const std::vector<View>& beside,
                   std::uint32_t ndim) const;
  /// Checks the scale of such a gradient in the same way, and sets `info.scaled` if there is one.
  void check_scale(TensorInfo& info, const View& gradient, std::span<const float> scale) const;
  TensorId add(TensorInfo info, const View& gradient, std::vector<View> beside, std::span<const float> scale);
  /// Throws Error(invalid_argument) unless add() returned `id`.
  void check(TensorId id) const;

  /// Begins a step, with every gradient in the memory that was given to add().
  void begin_step();
  /// Takes the gradient that the caller gives for this step. If it is null, the gradient is where it was added.
  void give(std::size_t index, const View* gradient, bool zero);
  /// Whether AddressSanitizer knows that the memory was freed; false in other builds.
  [[nodiscard]] bool is_freed(std::size_t index) const;

  [[nodiscard]] const std::vector<TensorInfo>& infos() const noexcept { return infos_; }
  [[nodiscard]] std::size_t size() const noexcept { return infos_.size(); }
  /// The gradient's memory as given to add().
  [[nodiscard]] const View& added(std::size_t index) const { return added_[index]; }
  /// Empty if the tensor has no scale.
  [[nodiscard]] std::span<const float> scale(std::size_t index) const { return scales_[index]; }
  /// The scale as a View, which must only be read.
  [[nodiscard]] View scale_view(std::size_t index) const;
  [[nodiscard]] const std::string& name(std::size_t index) const { return infos_[index].name; }
  /// The gradients of this step.
  [[nodiscard]] std::span<const TensorMemory> memory() const noexcept { return memory_; }
  /// By tensor, the parameter and its optimizer state; empty if none were added.
  [[nodiscard]] const std::vector<std::vector<View>>& parameters() const noexcept { return parameters_; }

 private:
  void check_parameters(const std::string& name, const View& gradient, const std::vector<View>& beside) const;
  void check_overlap(const std::string& name, const View& view, std::uint32_t part) const;
  void check_gradient(std::size_t index, const View& gradient) const;

  Runner& runner_;
  std::vector<TensorInfo> infos_;
  std::unordered_set<std::string> names_;
  Extents extents_;
  std::vector<View> added_;
  std::vector<std::vector<View>> parameters_;
  std::vector<std::span<const float>> scales_;
  std::vector<TensorMemory> memory_;
};

}  // namespace gradwire::session
