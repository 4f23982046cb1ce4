// Numbers of a job that it tells its session, such as its loss, for those who watch it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.hpp"
#include "session/part/part.hpp"

namespace gradwire::session {

class Notes final : public Part {
 public:
  static constexpr std::size_t kMost = 16;

  /// Sets the number of this name. Error(invalid_argument) for a name that cannot be a label, or one too many.
  void note(std::string_view name, double value);

  [[nodiscard]] std::string_view name() const noexcept override { return "notes"; }
  [[nodiscard]] bool has_name_compared() const noexcept override { return false; }
  void take_over(Part& before) override;
  void add_to(observe::Snapshot& snapshot) const override;
  using Part::add_to;

 private:
  mutable Mutex mutex_;
  std::map<std::string, double, std::less<>> latest_ GUARDED_BY(mutex_);
};

[[nodiscard]] std::unique_ptr<Part> make_notes(const PartInputs& inputs);

}  // namespace gradwire::session
