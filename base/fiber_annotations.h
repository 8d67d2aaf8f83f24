// Tells the sanitizers of a switch between call stacks, which they cannot see: AddressSanitizer
// which stack is current, ThreadSanitizer which logical thread. Without a sanitizer everything here
// is empty.
//
//   from.BeforeSwitchTo(to);   // on the old stack
//   ... the switch ...
//   to.AfterSwitchFrom(from);  // on the new stack
#pragma once

#include <cstddef>

#if defined(__has_feature)
#define SUMONCE_HAS_FEATURE(feature) __has_feature(feature)
#else
#define SUMONCE_HAS_FEATURE(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || SUMONCE_HAS_FEATURE(address_sanitizer)
#define SUMONCE_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__) || SUMONCE_HAS_FEATURE(thread_sanitizer)
#define SUMONCE_TSAN 1
#include <sanitizer/tsan_interface.h>
#endif

namespace sumonce {

class FiberAnnotation {
 public:
  // The calling thread's own stack; its bounds become known at the first switch away from it.
  static FiberAnnotation OfThread() {
    FiberAnnotation annotation;
#ifdef SUMONCE_TSAN
    annotation.tsan_fiber_ = __tsan_get_current_fiber();
#endif
    return annotation;
  }

  // A fiber's stack, lowest address first.
  static FiberAnnotation OfFiber(const void* bottom, size_t bytes) {
    FiberAnnotation annotation;
    annotation.bottom_ = bottom;
    annotation.bytes_ = bytes;
    annotation.Unpoison();
#ifdef SUMONCE_TSAN
    annotation.tsan_fiber_ = __tsan_create_fiber(0);
#endif
    return annotation;
  }

  void BeforeSwitchTo([[maybe_unused]] FiberAnnotation& next) {
#ifdef SUMONCE_ASAN
    __sanitizer_start_switch_fiber(finished_ ? nullptr : &fake_stack_, next.bottom_, next.bytes_);
#endif
#ifdef SUMONCE_TSAN
    __tsan_switch_to_fiber(next.tsan_fiber_, 0);
#endif
  }

  void AfterSwitchFrom([[maybe_unused]] FiberAnnotation& previous) {
#ifdef SUMONCE_ASAN
    __sanitizer_finish_switch_fiber(fake_stack_, &previous.bottom_, &previous.bytes_);
#endif
  }

  // The next switch away is the last: nothing returns to this stack.
  void Finish() { finished_ = true; }

  // Of a fiber that has ended, called from another stack.
  void Destroy() {
    Unpoison();
#ifdef SUMONCE_TSAN
    __tsan_destroy_fiber(tsan_fiber_);
#endif
  }

 private:
  // The frames that a fiber never returns from leave marks on its stack's addresses, and not every
  // runtime wipes them when the memory is unmapped and mapped again.
  void Unpoison() {
#ifdef SUMONCE_ASAN
    __asan_unpoison_memory_region(bottom_, bytes_);
#endif
  }

  const void* bottom_ = nullptr;
  size_t bytes_ = 0;
  [[maybe_unused]] void* fake_stack_ = nullptr;
  [[maybe_unused]] void* tsan_fiber_ = nullptr;
  bool finished_ = false;
};

}  // namespace sumonce
