#include "nccl_preload/fake_events.hpp"

#include <cuda.h>

#include <utility>

#include "nccl_preload/fake_nccl.hpp"

extern "C" CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  *status =
      stream == reinterpret_cast<CUstream>(0x70) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

// The events of the fake driver: each record is a millisecond later than the previous one, and none is ready the first
// time that it is asked for.
#undef cuEventElapsedTime
#undef cuEventDestroy
struct CUevent_st {
  int at = 0;
  bool asked = false;
};
namespace gradwire::test {

Events events;

}  // namespace gradwire::test

using gradwire::test::events;

extern "C" {
CUresult cuEventCreate(CUevent* event, unsigned int /*flags*/) {
  *event = new CUevent_st;
  ++events.made;
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  event->at = ++events.recorded;
  if (events.milliseconds_of_sum > 0) {
    event->at = static_cast<int>(events.milliseconds_of_sum * static_cast<double>(fake_nccl_calls("ncclAllReduce"))) +
                static_cast<int>(fake_nccl_calls("ncclGroupEnd"));
  }
  events.captured += stream == reinterpret_cast<CUstream>(0x70) ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent event) {
  return std::exchange(event->asked, true) || events.milliseconds_of_sum > 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  *milliseconds = static_cast<float>(end->at - begin->at);
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent event) {
  delete event;
  ++events.destroyed;
  return CUDA_SUCCESS;
}
}
