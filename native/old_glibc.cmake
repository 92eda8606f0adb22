# Has the module load where glibc is older than here, as far back as 2.18: see src/python/old_glibc.cpp. libstdc++ is linked in;
# libgcc_s stays outside, since exceptions are unwound by the one that the process has.
target_sources(_native PRIVATE src/python/old_glibc.cpp)
target_link_options(_native PRIVATE -static-libstdc++)
foreach(function IN ITEMS exp fstat fstatat gettid log pthread_cond_clockwait pthread_create pthread_detach
        pthread_getcpuclockid pthread_getspecific pthread_join pthread_key_create pthread_key_delete pthread_once
        pthread_setname_np pthread_setspecific pthread_sigmask)
  target_link_options(_native PRIVATE -Wl,--wrap=${function})
endforeach()
# Where threads lay before glibc 2.34; later ones keep an empty library of that name.
target_link_options(_native PRIVATE -Wl,--push-state,--no-as-needed,-l:libpthread.so.0,--pop-state)
