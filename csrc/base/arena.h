// Memory for weights, cache and scratch: anonymous pages, zeroed, aligned for huge pages, never through malloc.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

namespace pyrt {

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    if (bytes > SIZE_MAX - kHuge) throw std::bad_alloc();
    mapped_ = bytes >= kHuge ? bytes + kHuge : bytes;
    base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base_ == MAP_FAILED) {
      base_ = nullptr;
      throw std::bad_alloc();
    }
    data_ = static_cast<uint8_t*>(base_);
    if (bytes >= kHuge) {
      data_ = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(base_) + kHuge - 1) & ~uintptr_t(kHuge - 1));
      madvise(data_, bytes, MADV_HUGEPAGE);
    }
  }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (base_) munmap(base_, mapped_);
  }

  uint8_t* data() const { return data_; }
  size_t size() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  static constexpr size_t kHuge = size_t(2) << 20;
  void swap(Buffer& other) {
    std::swap(base_, other.base_);
    std::swap(mapped_, other.mapped_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  void* base_ = nullptr;
  size_t mapped_ = 0;
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

// Memory that lives as long as the arena; allocations are zeroed and start on cache lines. Its parts lie together, so
// that small matrices share huge pages.
class Arena {
 public:
  uint8_t* allocate(size_t bytes) {
    if (bytes > SIZE_MAX - kLine) throw std::bad_alloc();
    bytes = (bytes + kLine - 1) / kLine * kLine;
    if (chunks_.empty() || bytes > chunks_.back().size() - used_) {
      chunks_.emplace_back(bytes > kChunk ? bytes : kChunk);
      used_ = 0;
    }
    uint8_t* at = chunks_.back().data() + used_;
    used_ += bytes;
    allocated_ += bytes;
    return at;
  }
  size_t allocated() const { return allocated_; }

 private:
  static constexpr size_t kLine = 64, kChunk = size_t(64) << 20;  // untouched pages of a chunk cost nothing
  std::vector<Buffer> chunks_;
  size_t used_ = 0, allocated_ = 0;
};

}  // namespace pyrt
