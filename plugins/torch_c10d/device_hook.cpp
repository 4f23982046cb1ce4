#include "plugins/torch_c10d/device_hook.hpp"

#include <dlfcn.h>

#include "plugins/torch_c10d/own_folder.hpp"

namespace gradwire::torch_c10d {
namespace {

// Returns a function of the shared object. `caller` begins the messages of errors.
void* find_function(const char* name, const std::string& caller, const std::string& device) {
  if (!device.starts_with("cuda")) {
    throw Error(ErrorCode::unsupported,
                caller + ": the tensors are on " + device + "; it reduces tensors on the CPU and on CUDA devices");
  }
  const std::string file = own_folder() + "libgradwire_torch_cuda.so";
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays until the process ends
  if (library == nullptr) {
    const char* const why = ::dlerror();
    throw Error(ErrorCode::unsupported, caller + ": tensors on " + device + " need " + file + " (" +
                                            (why == nullptr ? "no reason" : why) +
                                            "); build gradwire with nvcc and NCCL (cmake -DGRADWIRE_CUDA=ON)");
  }
  void* const function = ::dlsym(library, name);
  if (function == nullptr) {
    throw Error(ErrorCode::unsupported, caller + ": " + file + " is not the one of this build");
  }
  return function;
}

}  // namespace

std::unique_ptr<HookEngine> load_device_hook_engine(const HookOptions& options, const std::string& device) {
  void* const function = find_function(kDeviceHookFunction, "gradwire_torch.Hook", device);
  return std::unique_ptr<HookEngine>(reinterpret_cast<DeviceHookFunction>(function)(options));
}

std::unique_ptr<ScatterEngine> load_device_scatter_engine(const ScatterOptions& options, const std::string& device) {
  void* const function = find_function(kDeviceScatterFunction, kScatterName, device);
  return std::unique_ptr<ScatterEngine>(reinterpret_cast<DeviceScatterFunction>(function)(options));
}

}  // namespace gradwire::torch_c10d
