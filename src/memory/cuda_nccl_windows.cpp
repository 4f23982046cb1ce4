#include "memory/cuda_nccl_windows.hpp"

#include <dlfcn.h>

#include <algorithm>

#include "base/current_error.hpp"
#include "gradwire/error.hpp"
#include "memory/cuda_windows.hpp"

namespace gradwire::memory {
namespace {

constexpr int kSymmetric = 1;               // NCCL_WIN_COLL_SYMMETRIC
constexpr std::size_t kGranularity = 4096;  // NCCL_WIN_REQUIRED_ALIGNMENT

template <class Function>
bool look_up(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

}  // namespace

std::string NcclWindowFunctions::find() {
  return !look_up(mem_alloc, "ncclMemAlloc")                             ? "ncclMemAlloc"
         : !look_up(mem_free, "ncclMemFree")                             ? "ncclMemFree"
         : !look_up(comm_window_register, "ncclCommWindowRegister")      ? "ncclCommWindowRegister"
         : !look_up(comm_window_deregister, "ncclCommWindowDeregister")  ? "ncclCommWindowDeregister"
         : !look_up(get_peer_device_pointer, "ncclGetPeerDevicePointer") ? "ncclGetPeerDevicePointer"
         : !look_up(get_error_string, "ncclGetErrorString")              ? "ncclGetErrorString"
                                                                         : "";
}

void NcclPeerWindows::check(int result, const char* call) const {
  if (result != 0) {
    throw Error(ErrorCode::transport, std::string("opening windows by NCCL: ") + functions_.get_error_string(result) +
                                          " (" + call + ", " + std::to_string(result) + ")");
  }
}

void NcclPeerWindows::allocate(std::size_t bytes) {
  check(functions_.mem_alloc(&data_, bytes), "ncclMemAlloc");
  clear_window(data_, bytes);
}

void NcclPeerWindows::add(std::size_t bytes) {
  check(functions_.comm_window_register(communicator_, data_, bytes, &handle_, kSymmetric), "ncclCommWindowRegister");
  if (handle_ == nullptr) {
    throw Error(ErrorCode::unsupported, "opening windows by NCCL: this communicator has no symmetric windows");
  }
}

// NCCL may map a rank's own window a second time; its own address is the one that it has.
void NcclPeerWindows::find_windows(int rank, int world_size) {
  windows_.assign(static_cast<std::size_t>(world_size), nullptr);
  for (int other = 0; other < world_size; ++other) {
    void* address = data_;
    if (other != rank) {
      check(functions_.get_peer_device_pointer(handle_, 0, other, &address), "ncclGetPeerDevicePointer");
    }
    if (address == nullptr) {
      throw Error(ErrorCode::unsupported,
                  "opening windows by NCCL: the memory of rank " + std::to_string(other) + " cannot be written to");
    }
    windows_[static_cast<std::size_t>(other)] = static_cast<std::byte*>(address);
  }
}

// Every step has an exchange behind it, so that no rank enters a collective call of NCCL that another one does not
// enter, and all ranks fail together.
std::unique_ptr<NcclPeerWindows> NcclPeerWindows::open(void* communicator, std::size_t bytes, int rank,
                                                       const AllGather& all_gather, std::string& why,
                                                       const NcclWindowFunctions* functions) {
  const std::size_t whole = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  const std::string good = "good";
  NcclWindowFunctions found = functions != nullptr ? *functions : NcclWindowFunctions();
  const std::string missing = functions != nullptr ? "" : found.find();
  std::unique_ptr<NcclPeerWindows> windows(new NcclPeerWindows(communicator, found));
  std::size_t world_size = 0;
  // Returns whether all ranks could do it.
  const auto all_can = [&](const auto& step) {
    std::string trouble = good;
    try {
      step();
    } catch (...) {
      trouble = current_error().what();
    }
    const std::vector<std::string> troubles = all_gather(trouble);
    world_size = troubles.size();
    const auto failed = std::find_if(troubles.begin(), troubles.end(), [&](const auto& text) { return text != good; });
    if (failed != troubles.end()) {
      why = "rank " + std::to_string(failed - troubles.begin()) + ": " + *failed;
    }
    return failed == troubles.end();
  };
  const auto begin = [&] {
    if (!missing.empty()) {
      throw Error(ErrorCode::unsupported, "NCCL has no " + missing + "; windows by NCCL need 2.29.2 or later");
    }
    windows->allocate(whole);
  };
  const bool opened = all_can(begin) && all_can([&] { windows->add(whole); }) &&
                      all_can([&] { windows->find_windows(rank, static_cast<int>(world_size)); });
  return opened ? std::move(windows) : nullptr;
}

NcclPeerWindows::~NcclPeerWindows() {
  if (leaks_) {
    return;
  }
  if (handle_ != nullptr) {
    functions_.comm_window_deregister(communicator_, handle_);
  }
  if (data_ != nullptr) {
    functions_.mem_free(data_);
  }
}

}  // namespace gradwire::memory
