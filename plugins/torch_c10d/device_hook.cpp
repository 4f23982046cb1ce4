#include "plugins/torch_c10d/device_hook.hpp"

#include <dlfcn.h>

#include "plugins/torch_c10d/own_folder.hpp"

namespace gradwire::torch_c10d {
std::unique_ptr<HookEngine> load_device_hook_engine(const HookOptions& options, const std::string& device) {
  if (!device.starts_with("cuda")) {
    throw Error(ErrorCode::unsupported, "gradwire_torch.Hook: the parameters are on " + device +
                                            "; the hook reduces gradients on the CPU and on CUDA devices");
  }
  const std::string file = own_folder() + "libgradwire_torch_cuda.so";
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays until the process ends
  if (library == nullptr) {
    const char* const why = ::dlerror();
    throw Error(ErrorCode::unsupported, "gradwire_torch.Hook: gradients on " + device + " need " + file + " (" +
                                            (why == nullptr ? "no reason" : why) +
                                            "); build gradwire with nvcc and NCCL (cmake -DGRADWIRE_CUDA=ON)");
  }
  void* const function = ::dlsym(library, kDeviceHookFunction);
  if (function == nullptr) {
    throw Error(ErrorCode::unsupported, "gradwire_torch.Hook: " + file + " is not the one of this build");
  }
  return std::unique_ptr<HookEngine>(reinterpret_cast<DeviceHookFunction>(function)(options));
}

}  // namespace gradwire::torch_c10d
