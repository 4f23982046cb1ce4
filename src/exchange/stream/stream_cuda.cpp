#include "exchange/stream/stream_cuda.hpp"

#if defined(GRADWIRE_NVTX)
#include <nvtx3/nvToolsExt.h>
#endif

#include "kernels/device/operations.hpp"
#include "kernels/device/window_operations.hpp"
#include "memory/cuda_check.hpp"

namespace gradwire::exchange {

using memory::cuda_check;

CudaStream::CudaStream(bool high_priority) {
  int lowest = 0;
  int highest = 0;  // the smaller number
  cuda_check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "asking for the priorities of streams");
  cuda_check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, high_priority ? highest : lowest),
             "making a stream");
}

CudaStream::~CudaStream() { cudaStreamDestroy(stream_); }

CudaEvent::CudaEvent() { cuda_check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event"); }

CudaEvent::~CudaEvent() { cudaEventDestroy(event_); }

void CudaEvent::record(cudaStream_t stream) { cuda_check(cudaEventRecord(event_, stream), "recording an event"); }

void wait_for(cudaStream_t stream, const CudaEvent& event) {
  cuda_check(cudaStreamWaitEvent(stream, event.get(), 0), "making a stream wait for an event");
}

#if defined(GRADWIRE_NVTX)
namespace {
nvtxDomainHandle_t nvtx_domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("gradwire");
  return domain;
}
}  // namespace

void CudaBackend::begin_range(const char* name) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name;
  nvtxDomainRangePushEx(nvtx_domain(), &attributes);
}
void CudaBackend::end_range() noexcept { nvtxDomainRangePop(nvtx_domain()); }
#else
void CudaBackend::begin_range(const char* /*name*/) {}
void CudaBackend::end_range() noexcept {}
#endif

void CudaBackend::open_node_queue() {
  if (node_ == nullptr) {
    node_ = std::make_unique<CudaStream>(high_priority_);
  }
}

// An Event is its number times four, plus the queue.
StreamBackend::Event CudaBackend::record(Queue queue) {
  const auto q = static_cast<std::size_t>(queue);
  const Event number = recorded_.at(q)++;
  events_.at(q).at(number % kEvents).record(stream(queue));
  return number << 2U | static_cast<Event>(q);
}

void CudaBackend::wait(Queue queue, Event event) {
  const std::size_t q = event & 3U;
  const Event number = event >> 2U;
  wait_for(stream(queue), events_.at(q).at(number % kEvents));
}

void CudaBackend::open_headers(std::span<const kernels::HeaderJob> jobs) {
  kernels::open_headers(jobs, kernel_queue());
}
void CudaBackend::encode(const kernels::EncodeJob& job) { kernels::encode(job, kernel_queue()); }
void CudaBackend::decode(const kernels::DecodeJob& job) { kernels::decode(job, kernel_queue()); }
void CudaBackend::reduce(const kernels::ReduceJob& job) { kernels::reduce(job, kernel_queue()); }

void CudaBackend::open_all(std::span<const kernels::HeaderJob> jobs, std::uint64_t* list) {
  kernels::open_all(jobs, list, kernel_queue());
}

void CudaBackend::encode_all(std::span<const kernels::EncodeJob> jobs, std::uint64_t* list) {
  kernels::encode_all(jobs, list, kernel_queue());
}

void CudaBackend::decode_all(std::span<const kernels::DecodeJob> jobs, std::uint64_t* list) {
  kernels::decode_all(jobs, list, kernel_queue());
}

void CudaBackend::reduce_all(std::span<const kernels::ReduceJob> jobs, std::uint64_t* list) {
  kernels::reduce_all(jobs, list, kernel_queue());
}

void CudaBackend::all_reduce_windows(const kernels::WindowJob& job) {
  kernels::all_reduce_windows(job, compute_.get());
}

void CudaBackend::fold(float* residual, double factor, const double* device_factor, void* values, DType dtype,
                       std::uint64_t count) {
  kernels::fold(residual, factor, device_factor, values, dtype, count, kernel_queue());
}

void CudaBackend::convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::uint64_t count,
                          double factor, const double* device_factor, double divisor, const double* device_divisor) {
  kernels::convert(from, from_dtype, to, to_dtype, count, factor, device_factor, divisor, device_divisor,
                   kernel_queue());
}

void CudaBackend::measure_scale(const float* scale, std::uint64_t count, std::uint8_t* powers) {
  kernels::measure_scale(scale, count, powers, kernel_queue());
}

void CudaBackend::rescale(const kernels::RescaleJob& job) { kernels::rescale(job, kernel_queue()); }

void CudaBackend::hash(const void* elements, std::uint64_t count, std::uint32_t* sums) {
  kernels::hash(elements, count, sums, kernel_queue());
}

void CudaBackend::gather(std::span<const kernels::CopyPiece> pieces, DType tensors, void* run, DType run_dtype) {
  kernels::gather(pieces, tensors, run, run_dtype, kernel_queue());
}

void CudaBackend::scatter(std::span<const kernels::CopyPiece> pieces, DType tensors, const void* run, DType run_dtype) {
  kernels::scatter(pieces, tensors, run, run_dtype, kernel_queue());
}

void CudaBackend::write(std::span<const std::uint64_t> words, std::uint64_t* to) {
  kernels::write(words, to, kernel_queue());
}

void CudaBackend::copy(void* to, const void* from, std::size_t bytes) {
  cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, compute_.get()),
             "copying " + std::to_string(bytes) + " bytes on the device");
}

void CudaBackend::sum_weights(std::span<const double* const> weights, double own, double* totals) {
  kernels::sum_weights(weights, own, totals, kernel_queue());
}

void CudaBackend::store_weight(double weight, double* to) { kernels::store_weight(weight, to, kernel_queue()); }

void CudaBackend::send(std::span<const std::byte> bytes, int peer) {
  messages_.send(bytes, peer, communication_.get());
}

void CudaBackend::receive(std::span<std::byte> bytes, int peer) {
  messages_.receive(bytes, peer, communication_.get());
}

void CudaBackend::all_reduce(void* values, DType dtype, std::uint64_t count) {
  messages_.all_reduce(values, dtype, count, communication_.get());
}

void CudaBackend::sum_in_node(const void* from, void* to, DType dtype, std::uint64_t each, std::uint64_t rest) {
  messages_.sum_in_node(from, to, dtype, each, rest, stream(Queue::node));
}

void CudaBackend::gather_in_node(void* all, std::uint64_t bytes) {
  messages_.gather_in_node(all, bytes, stream(Queue::node));
}

}  // namespace gradwire::exchange
