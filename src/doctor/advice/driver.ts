/** What to do about what a driver says, by its own words. */

const hung = 'The driver hangs: look at `dmesg | grep -iE "nvrm|xid"`. Keep it open with `nvidia-smi -pm 1` (or nvidia-persistenced); if it stays, reboot.';

/** First match counts. */
const table: readonly (readonly [RegExp, string])[] = [
  [/driver and library versions differ|version mismatch/i, 'The driver was updated under a running kernel module: reboot, or unload and load it again (`sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia`).'],
  [/driver not loaded|couldn't communicate with the NVIDIA driver|driver is not loaded/i, 'The kernel module is not loaded: `sudo modprobe nvidia`. If that is refused, it was not built for this kernel or is not signed (Secure Boot): install the driver anew.'],
  [/no permission|insufficient permissions/i, 'This user may not open the driver: look at the modes of /dev/nvidia* and at the groups `video` and `render`.'],
  [/GPU is lost|fallen off the bus/i, 'The card has fallen off the bus (XID 79 in `dmesg`): power, heat, its slot or the card itself. Only a reboot brings it back.'],
  [/reset required/i, 'End what runs on the card and reset it: `sudo nvidia-smi --gpu-reset -i UUID`, or reboot.'],
  [/no word|no answer|still starting|stuck in the driver|timed out|timeout/i, hung],
  [/which cannot be/i, 'Its figures contradict themselves, so they are not used. Update the driver; until then a lower rung answers.'],
  [/MIG mode/i, 'Make slices (`sudo nvidia-smi mig -cgi … -C`), or switch MIG off (`sudo nvidia-smi -i UUID -mig 0`). Slices are read through NVML alone.'],
  [/no memory figure|N\/A|Not Supported|no such figure/i, 'The driver gives no memory figures for this card (its memory may be the machine\'s): nothing can be leased there.'],
  [/not enough descriptors|EMFILE|ENFILE/i, 'There are no file descriptors left: see the limits below.'],
  [/cannot open shared object|could not be loaded|no such file|ENOENT|could not be started/i, 'Install the NVIDIA driver with its tools. In a container: start it with `--gpus all` and NVIDIA_DRIVER_CAPABILITIES=compute,utility.'],
];

/** A sentence for what a rung or a card said; a general one where its words are not known. */
export function driverAdvice(reason: string): string {
  return table.find(([words]) => words.test(reason))?.[1] ?? 'Try the driver by itself (`nvidia-smi`), look at `dmesg`, and update or reinstall it.';
}
