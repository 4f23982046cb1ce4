// The tensors of a session: what was added, what each step gives, and what they must be.
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
  /// `runner` knows in which memory they must be, and outlives this.
  explicit Tensors(Runner& runner) : runner_(runner) {}

  /// `beside`: the parameter and its optimizer state. Error(invalid_argument) names what is wrong; nothing has changed
  /// then.
  TensorInfo check(const std::string& name, const View& gradient, const std::vector<View>& beside,
                   std::uint32_t ndim) const;
  /// The same for the scale of such a gradient, of which `info` is told.
  void check_scale(TensorInfo& info, const View& gradient, std::span<const float> scale) const;
  TensorId add(TensorInfo info, const View& gradient, std::vector<View> beside, std::span<const float> scale);
  /// Error(invalid_argument) unless add() returned it.
  void check(TensorId id) const;

  /// Every gradient where it was added.
  void begin_step();
  /// What the caller gives for this step; `gradient` null: where it was added.
  void give(std::size_t index, const View* gradient, bool zero);
  /// Whether AddressSanitizer knows that the memory was freed; false in other builds.
  [[nodiscard]] bool is_freed(std::size_t index) const;

  [[nodiscard]] const std::vector<TensorInfo>& infos() const noexcept { return infos_; }
  [[nodiscard]] std::size_t size() const noexcept { return infos_.size(); }
  /// Where it was added.
  [[nodiscard]] const View& added(std::size_t index) const { return added_[index]; }
  /// Empty where it has none.
  [[nodiscard]] std::span<const float> scale(std::size_t index) const { return scales_[index]; }
  /// The same, to be read only.
  [[nodiscard]] View scale_view(std::size_t index) const;
  [[nodiscard]] const std::string& name(std::size_t index) const { return infos_[index].name; }
  /// Gradients of this step.
  [[nodiscard]] std::span<const TensorMemory> memory() const noexcept { return memory_; }
  /// By tensor: the parameter and its optimizer state, where added.
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
