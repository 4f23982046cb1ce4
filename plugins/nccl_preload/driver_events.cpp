#include "plugins/nccl_preload/driver_events.hpp"

#include <dlfcn.h>

#include <type_traits>

namespace gradwire::nccl_preload {
namespace {

CUevent event_of(drop_in::DeviceClock::Mark mark) noexcept {
  return reinterpret_cast<CUevent>(mark);  // NOLINT(performance-no-int-to-ptr): a handle that was made from one
}

}  // namespace

void* driver_function(const char* name) noexcept {
  if (void* found = dlsym(RTLD_DEFAULT, name); found != nullptr) {
    return found;
  }
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  return driver != nullptr ? dlsym(driver, name) : nullptr;
}

const DriverEvents& driver_events() noexcept {
  static const DriverEvents found = [] {
    DriverEvents loaded;
    const auto find = [](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(driver_function(name));
    };
    find(loaded.create, "cuEventCreate");
    find(loaded.record, "cuEventRecord");
    find(loaded.query, "cuEventQuery");
    find(loaded.elapsed, "cuEventElapsedTime");
    find(loaded.destroy, "cuEventDestroy_v2");
    find(loaded.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
    return loaded;
  }();
  return found;
}

drop_in::DeviceClock::Mark EventClock::mark(void* stream) {
  CUevent event = nullptr;
  if (!driver_events().complete() || driver_events().create(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
    return 0;
  }
  if (driver_events().record(event, static_cast<CUstream>(stream)) != CUDA_SUCCESS) {
    driver_events().destroy(event);
    return 0;
  }
  return reinterpret_cast<Mark>(event);
}

bool EventClock::reached(Mark mark) {
  return mark == 0 || driver_events().query(event_of(mark)) != CUDA_ERROR_NOT_READY;
}

std::optional<double> EventClock::seconds(Mark begin, Mark end) {
  float milliseconds = 0;
  if (begin == 0 || end == 0 ||
      driver_events().elapsed(&milliseconds, event_of(begin), event_of(end)) != CUDA_SUCCESS) {
    return std::nullopt;
  }
  return milliseconds / 1e3;
}

void EventClock::drop(Mark mark) noexcept {
  if (mark != 0) {
    driver_events().destroy(event_of(mark));
  }
}

}  // namespace gradwire::nccl_preload
