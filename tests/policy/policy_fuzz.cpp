// Fuzz target: any bytes of a policy file are read, or refused with an Error at a place. With clang:
//   clang++ -fsanitize=fuzzer,address ... tests/policy/policy_fuzz.cpp, run on tests/policy/corpus.
// policy_fuzz_test.cpp replays the corpus and seeded mutations of it as a plain test.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "gradwire/error.hpp"
#include "gradwire/policy.hpp"
#include "plan/call_plan.hpp"
#include "plan/plan.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace gradwire;
  const std::string_view text(reinterpret_cast<const char*>(data), bytes);
  try {
    const Policy policy = Policy::parse(text, "fuzz");
    // An accepted policy must be usable.
    try {
      const plan::CallPlanner calls(policy);
      (void)calls.resolve({.count = 1 << 20, .order = 3, .communicator_size = 4, .name = "fc1.bias"});
      (void)calls.describe();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) {  // the policy needs a session
        std::abort();
      }
    }
    std::vector<TensorInfo> tensors{
        {"fc1.weight", 4096, DType::f32, 2}, {"fc1.bias", 10, DType::f16, 1}, {"", 0, DType::f64, 0}};
    for (TensorInfo& tensor : tensors) {
      tensor.parameters = 2;
    }
    try {
      (void)plan::make_plan(policy, tensors, {}).explain();
    } catch (const Error& error) {
      // Only a strict policy may refuse the tensors, and some modes may refuse their dtype or their ids.
      if (!policy.strict && error.code() != ErrorCode::unsupported) {
        std::abort();
      }
    }
  } catch (const Error& error) {
    if (!std::string_view(error.what()).starts_with("fuzz:")) {
      std::abort();
    }
  }
  return 0;
}
