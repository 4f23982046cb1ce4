// Links gradwire::nccl and asks it for a session; without a GPU the answer is an Error that says so.
#include <cstdio>
#include <cstring>
#include <gradwire/cuda.hpp>
#include <gradwire/nccl.hpp>

int main() {
  try {
    auto session = gradwire::nccl::make_session(nullptr, nullptr, gradwire::Policy());
  } catch (const gradwire::Error& error) {
    std::puts(error.what());
    const bool no_gpu = error.code() == gradwire::ErrorCode::unsupported;
    const bool null = error.code() == gradwire::ErrorCode::invalid_argument;
    return no_gpu || null ? 0 : 1;
  }
  return 1;
}
