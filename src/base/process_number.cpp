#include "base/process_number.hpp"

#include <atomic>

namespace gradwire {
namespace {

constexpr std::uint64_t kNone = ~std::uint64_t{0};
std::atomic<std::uint64_t> g_number{kNone};

}  // namespace

void number_process(std::uint32_t number) noexcept {
  std::uint64_t none = kNone;
  g_number.compare_exchange_strong(none, number);
}

std::optional<std::uint32_t> process_number() noexcept {
  const std::uint64_t number = g_number.load();
  return number == kNone ? std::nullopt : std::optional(static_cast<std::uint32_t>(number));
}

}  // namespace gradwire
