#include "base/environment.hpp"

#include <array>
#include <cstdlib>

#include "gradwire/error.hpp"

namespace gradwire {
namespace {

constexpr std::array kVariables{
    EnvironmentVariable{"GRADWIRE_DISABLE", "0 | 1", "0", "1 on any rank: the drop-in passes every call through, on every rank"},
    EnvironmentVariable{"GRADWIRE_LOG", "debug | info | warn | error | off", "warn",
                        "least severe log line that is printed, to standard error"},
    EnvironmentVariable{"GRADWIRE_REPORT", "a file name", "none",
                        "JSON report that the drop-in writes at the end of the job; that of NCCL calls gets the suffix .nccl"},
    EnvironmentVariable{"GRADWIRE_SIMD", "auto | scalar", "auto",
                        "scalar: codecs use the portable reference core instead of the widest SIMD of this CPU"},
};

}  // namespace

std::span<const EnvironmentVariable> environment_variables() noexcept { return kVariables; }

std::optional<std::string> environment(std::string_view name) {
  for (const EnvironmentVariable& variable : kVariables) {
    if (variable.name == name) {
      const char* value = std::getenv(std::string(name).c_str());  // NOLINT(concurrency-mt-unsafe): read only
      if (value == nullptr || *value == '\0') {
        return std::nullopt;
      }
      return std::string(value);
    }
  }
  throw Error(ErrorCode::internal, "environment variable " + std::string(name) + " is not in the table");
}

}  // namespace gradwire
