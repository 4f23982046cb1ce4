#include "session/parts/result_comparison/result_comparison.hpp"

#include <cstdint>
#include <span>
#include <string_view>

namespace gradwire::session {
namespace {

class ResultComparison final : public Part, private ResultReader {
 public:
  ResultComparison(Runner& runner, std::uint64_t every) : runner_(runner), every_(every) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "result comparison"; }
  [[nodiscard]] bool has_name_compared() const noexcept override { return false; }
  [[nodiscard]] ResultReader* result_reader() noexcept override { return this; }

 private:
  [[nodiscard]] bool reads(std::uint64_t step) const override { return (step + 1) % every_ == 0; }
  void read(std::span<const View> results, std::uint64_t step) override { runner_.compare(results, step); }

  Runner& runner_;
  const std::uint64_t every_;  // steps
};

}  // namespace

std::unique_ptr<Part> make_result_comparison(const PartInputs& inputs) {
  const std::uint64_t every = inputs.options.compare_ranks_every;
  return every > 0 ? std::make_unique<ResultComparison>(inputs.runner, every) : nullptr;
}

}  // namespace gradwire::session
