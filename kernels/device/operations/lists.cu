// The operations on several jobs at once.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/device/job_list.hpp"
#include "kernels/device/operations/dispatch.hpp"

namespace gradwire::kernels {
namespace {

std::uint32_t parts_of(const HeaderJob& job) { return job.series.frames * kHeaderWords; }
std::uint32_t parts_of(const EncodeJob& job) { return series_tiles(job.frame, job.series); }
std::uint32_t parts_of(const DecodeJob& job) { return series_tiles(job.frame, job.series); }
std::uint32_t parts_of(const ReduceJob& job) { return tiles_of(job.count); }

// Writes the jobs to `memory`: they come first, then the parts before them. Returns the number of all parts.
template <class Listed, class Job>
std::uint32_t write_list(std::span<const Job> jobs, std::uint64_t* memory, const KernelQueue& queue,
                         JobList<Listed>& list) {
  static_assert(sizeof(Listed) == sizeof(Job) && sizeof(Job) % 8 == 0);
  const std::size_t words = jobs.size_bytes() / 8;
  std::vector<std::uint64_t> all(list_bytes<Job>(jobs.size()) / 8);
  std::memcpy(all.data(), jobs.data(), jobs.size_bytes());
  std::vector<std::uint32_t> before{0};
  for (const Job& job : jobs) {
    before.push_back(before.back() + parts_of(job));
  }
  std::memcpy(all.data() + words, before.data(), before.size() * sizeof(std::uint32_t));
  write(all, memory, queue);
  list = {reinterpret_cast<const Listed*>(memory), reinterpret_cast<const std::uint32_t*>(memory + words),
          static_cast<std::uint32_t>(jobs.size())};
  return before.back();
}

// Calls body(Type<C>) for the warp codec C of a lossy codec.
template <class Body>
bool host_with_listed(const FrameCodec& codec, const Body& body) {
  switch (codec.k == 0 ? codec.id : kExactId) {
    GRADWIRE_DEVICE_CODECS(GRADWIRE_DENSE_CODEC)
    default: return false;
  }
}

template <class Body>
void with_listed_codec(const FrameCodec& codec, const Body& body) {
  if (!host_with_listed(codec, body)) {
    unknown_codec(codec);
  }
}

}  // namespace

void open_all(std::span<const HeaderJob> jobs, std::uint64_t* memory, const KernelQueue& queue) {
  JobList<HeaderJob> list;
  const std::uint32_t words = write_list(jobs, memory, queue, list);
  simt::launch("open_listed", open_listed<HeaderJob>, blocks_for((words + simt::kThreads - 1) / simt::kThreads, queue),
               queue.stream, list);
}

void encode_all(std::span<const EncodeJob> jobs, std::uint64_t* memory, const KernelQueue& queue) {
  JobList<InPieces<EncodeJob>> list;
  const std::uint32_t tiles = write_list(jobs, memory, queue, list);
  with_listed_codec(jobs[0].call.codec, [&]<class C>(Type<C>) {
    simt::launch("encode_listed", encode_listed<C, InPieces<EncodeJob>>, blocks_for(tiles, queue), queue.stream, list);
  });
}

void decode_all(std::span<const DecodeJob> jobs, std::uint64_t* memory, const KernelQueue& queue) {
  JobList<InPieces<DecodeJob>> list;
  const std::uint32_t tiles = write_list(jobs, memory, queue, list);
  with_listed_codec(jobs[0].call.codec, [&]<class C>(Type<C>) {
    simt::launch("decode_listed", decode_listed<C, InPieces<DecodeJob>>, blocks_for(tiles, queue), queue.stream, list);
  });
}

void reduce_all(std::span<const ReduceJob> jobs, std::uint64_t* memory, const KernelQueue& queue) {
  JobList<InPieces<ReduceJob>> list;
  const std::uint32_t tiles = write_list(jobs, memory, queue, list);
  with_listed_codec(jobs[0].call.codec, [&]<class C>(Type<C>) {
    simt::launch("reduce_listed", reduce_listed<C, InPieces<ReduceJob>>, blocks_for(tiles, queue), queue.stream, list);
  });
}

void load_list_kernels() {
  simt::load_kernel("open_listed", open_listed<HeaderJob>);
  for (std::uint8_t id = kExactId + 1; id < kCodecIds; ++id) {
    with_listed_codec({.id = id}, []<class C>(Type<C>) {
      simt::load_kernel("encode_listed", encode_listed<C, InPieces<EncodeJob>>);
      simt::load_kernel("decode_listed", decode_listed<C, InPieces<DecodeJob>>);
      simt::load_kernel("reduce_listed", reduce_listed<C, InPieces<ReduceJob>>);
    });
  }
}

}  // namespace gradwire::kernels
